// Package broker connects the services to Kafka.
package broker

import (
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

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

// Subscriber consumes one topic in a group. The offset of a message is committed after its handler
// has returned nil, that is after the commit of the inbox.
func (k Kafka) Subscriber(group string) (message.Subscriber, error) {
	cfg := kafkabridge.SubscriberConfig{
		Brokers: k.Brokers, Group: k.Prefix + group, CommitInterval: 200 * time.Millisecond,
	}
	if k.Instance != "" {
		cfg.Instance = k.Prefix + group + "." + k.Instance
	}
	return kafkabridge.NewSubscriber(cfg)
}
