// Package broker connects the services to Kafka.
package broker

import (
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/ormoutbox/ormoutbox/inbox"
	"github.com/ormoutbox/ormoutbox/watermillbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/kafkabridge"
)

// Kafka says where Kafka is.
type Kafka struct {
	Brokers []string
	// Prefix begins the names of topics and consumer groups, so that several runs can share a
	// cluster.
	Prefix string
	// Instance names this process among those of its service, and is the same after a restart. With
	// it the group gives the partitions of a process that was killed to its successor at once.
	// Without it the successor waits until the session of the dead process has timed out (10 s).
	Instance string
}

// Topic returns the name of a topic on this cluster.
func (k Kafka) Topic(name string) string { return k.Prefix + name }

// Publisher connects with safe settings: all replicas confirm, idempotent.
func (k Kafka) Publisher() (*watermillbridge.Publisher, error) {
	return kafkabridge.NewPublisher(kafkabridge.Config{Brokers: k.Brokers})
}

// Subscriber consumes one topic in a group. Watermill commits the offset of a message after its
// handler has returned nil, that is after the commit of the inbox.
func (k Kafka) Subscriber(group string) (message.Subscriber, error) {
	cfg := kafka.DefaultSaramaSubscriberConfig()
	cfg.Version = sarama.V2_8_0_0
	cfg.Consumer.Offsets.Initial = sarama.OffsetOldest // a new group begins with the first message
	cfg.Consumer.Offsets.AutoCommit.Interval = 200 * time.Millisecond
	if k.Instance != "" {
		cfg.Consumer.Group.InstanceId = k.Prefix + group + "." + k.Instance
	}
	return kafka.NewSubscriber(kafka.SubscriberConfig{
		Brokers: k.Brokers, ConsumerGroup: k.Prefix + group, Unmarshaler: kafka.DefaultMarshaler{},
		OverwriteSaramaConfig: cfg,
	}, watermill.NopLogger{})
}

// Source says where a message was, for the table of the inbox.
func Source(msg *message.Message) inbox.Source {
	partition, ok := kafka.MessagePartitionFromCtx(msg.Context())
	offset, _ := kafka.MessagePartitionOffsetFromCtx(msg.Context())
	topic := message.SubscribeTopicFromCtx(msg.Context())
	return inbox.Source{Topic: topic, Partition: partition, Offset: offset, Located: ok}
}
