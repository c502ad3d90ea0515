package broker

import (
	"errors"

	"github.com/IBM/sarama"

	"github.com/ormoutbox/ormoutbox/watermillbridge/kafkabridge"
)

// CreateTopics creates the topics that are missing, with three partitions and as many replicas as
// the cluster gives by default. In production topics have three replicas, and a person creates
// them.
func (k Kafka) CreateTopics(names ...string) (err error) {
	admin, err := sarama.NewClusterAdmin(k.Brokers, kafkabridge.SaramaConfig(0))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, admin.Close()) }()
	for _, name := range names {
		err := admin.CreateTopic(k.Topic(name), &sarama.TopicDetail{NumPartitions: 3, ReplicationFactor: -1}, false)
		if err != nil && !errors.Is(err, sarama.ErrTopicAlreadyExists) {
			return err
		}
	}
	return nil
}
