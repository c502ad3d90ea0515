package kafkabridge

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/watermillbridge/internal/link"
)

// SubscriberConfig configures a subscriber. Brokers and Group are required.
type SubscriberConfig struct {
	// Brokers are the addresses, as host:port, from which the client learns the cluster.
	Brokers []string
	// Group is the consumer group, whose offsets record the handled messages. Use one group for
	// each handler of a Router, because each call of Subscribe is a member of its own.
	Group string
	// Instance names this process in its group, and is the same after a restart (such as the name
	// of a pod of a StatefulSet). The group then gives the partitions of a process that was killed
	// to its successor at once. Without it the successor waits until the session of the dead
	// process has timed out (10 s). Two members with one name shut each other out, so call
	// Subscribe of such a subscriber once. Default: none.
	Instance string
	// Version is the oldest version of the brokers. Default: 2.8.0, which Kafka 4 understands too.
	Version sarama.KafkaVersion
	// ClientID names this client in the broker's logs and quotas. Default: "ormoutbox".
	ClientID string
	// CommitInterval is how often the offsets of handled messages are committed. After a crash, the
	// messages that were handled since then come again. Default: 1 s.
	CommitInterval time.Duration
	// NackPause is how long a rejected message waits until it is delivered again. An inbox pauses
	// itself. Default: 100 ms.
	NackPause time.Duration

	// Sarama replaces the whole configuration of this package: Instance, Version, ClientID and
	// CommitInterval too. Use it for TLS and SASL. Start from SubscriberSaramaConfig. Unsafe
	// settings are refused. The configuration is copied.
	Sarama *sarama.Config
	// Tracer traces messages. Default: none.
	Tracer kafka.SaramaTracer
	// Logger gets problems between the client and the brokers. Default: core.DefaultLogger,
	// warnings and errors to slog.Default().
	Logger *slog.Logger
}

const defaultCommitInterval = time.Second

// SubscriberSaramaConfig returns the configuration that a subscriber uses, for changes by the
// caller. A new group begins with the oldest message, messages of aborted transactions are left
// out, and only offsets of handled messages are committed, each second.
func SubscriberSaramaConfig() *sarama.Config {
	c := sarama.NewConfig()
	c.Version = sarama.V2_8_0_0
	c.ClientID = "ormoutbox"
	c.Consumer.Return.Errors = true
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	c.Consumer.Offsets.AutoCommit.Interval = defaultCommitInterval
	c.Consumer.IsolationLevel = sarama.ReadCommitted
	return c
}

// NewSubscriber returns watermill-kafka's subscriber with settings that lose no message. It does
// not connect: Subscribe does, and fails while Kafka is down.
//
// A message counts as handled once the handler has acknowledged it. Its offset is committed after
// that, so a crash delivers it again; an inbox makes that a duplicate. A partition delivers its
// next message when the one before is acknowledged. A rejected message is delivered again, so it
// holds up its partition.
//
// Metadata outbox_source (core.HeaderSource) is where the message was read. An inbox keeps it, so
// lists of dead events have topic, partition and offset.
func NewSubscriber(cfg SubscriberConfig) (*kafka.Subscriber, error) {
	s, err := cfg.sarama()
	if err != nil {
		return nil, err
	}
	cfg.Logger = cmp.Or(cfg.Logger, core.DefaultLogger())
	return kafka.NewSubscriber(kafka.SubscriberConfig{
		Brokers: append([]string(nil), cfg.Brokers...), ConsumerGroup: cfg.Group, Unmarshaler: unmarshaler{},
		OverwriteSaramaConfig: s, NackResendSleep: cfg.NackPause, Tracer: cfg.Tracer,
	}, watermill.NewSlogLogger(cfg.Logger))
}

// unmarshaler is Watermill's own, and sets metadata outbox_source to topic/partition/offset. A
// message without metadata partition_key gets the key of the record, if that is text. Unmarshal
// never fails: watermill-kafka stops reading a partition whose message cannot be read.
type unmarshaler struct{ kafka.DefaultMarshaler }

var _ kafka.Unmarshaler = unmarshaler{}

func (u unmarshaler) Unmarshal(m *sarama.ConsumerMessage) (*message.Message, error) {
	msg, err := u.DefaultMarshaler.Unmarshal(m)
	if err != nil {
		return nil, err
	}
	if key := string(m.Key); key != "" && msg.Metadata[core.HeaderPartitionKey] == "" && utf8.ValidString(key) {
		msg.Metadata[core.HeaderPartitionKey] = key
	}
	msg.Metadata[core.HeaderSource] = m.Topic + "/" + strconv.FormatInt(int64(m.Partition), 10) + "/" +
		strconv.FormatInt(m.Offset, 10)
	return msg, nil
}

// sarama returns the configuration to connect with, or every problem of c.
func (c SubscriberConfig) sarama() (*sarama.Config, error) {
	var problems []error
	refuse := func(bad bool, format string, args ...any) {
		if bad {
			problems = append(problems, fmt.Errorf("kafkabridge: SubscriberConfig."+format, args...))
		}
	}
	refuse(len(c.Brokers) == 0, "Brokers is empty")
	for i, b := range c.Brokers {
		refuse(b == "", "Brokers[%d] is empty", i)
	}
	refuse(c.Group == "", "Group is empty: without a group no offsets are kept, and a restart skips "+
		"messages or reads all of them again; choose a name and keep it")
	refuse(c.CommitInterval < 0, "CommitInterval %s is negative", c.CommitInterval)
	refuse(c.NackPause < 0, "NackPause %s is negative", c.NackPause)
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	s := SubscriberSaramaConfig()
	if c.Sarama != nil {
		own := *c.Sarama
		s = &own
		if err := errors.Join(unsafeForConsumers(s)...); err != nil {
			return nil, fmt.Errorf("%w:\n%w", errUnsafeConfig, err)
		}
	} else {
		if c.Version != (sarama.KafkaVersion{}) {
			s.Version = c.Version
		}
		if c.ClientID != "" {
			s.ClientID = c.ClientID
		}
		if c.CommitInterval > 0 {
			s.Consumer.Offsets.AutoCommit.Interval = c.CommitInterval
		}
		s.Consumer.Group.InstanceId = c.Instance
	}
	if err := s.Validate(); err != nil {
		return nil, fmt.Errorf("kafkabridge: %w", err)
	}
	return s, nil
}

// unsafeForConsumers returns every problem of s.
func unsafeForConsumers(s *sarama.Config) (problems link.Problems) {
	refuse := problems.Add
	c := &s.Consumer
	refuse(c.Offsets.Initial != sarama.OffsetOldest,
		"Consumer.Offsets.Initial is %d: a group without offsets, a new one or one whose offsets have expired, skips "+
			"messages; set sarama.OffsetOldest", c.Offsets.Initial)
	refuse(c.Fetch.Max != 0,
		"Consumer.Fetch.Max is %d: Sarama skips a message that is larger; set 0, which is no limit", c.Fetch.Max)
	refuse(c.IsolationLevel != sarama.ReadCommitted,
		"Consumer.IsolationLevel is ReadUncommitted: messages of aborted transactions are delivered too, and are of "+
			"events that never happened; set sarama.ReadCommitted")
	refuse(!c.Return.Errors, "Consumer.Return.Errors is false: errors would be lost; set true")
	refuse(!s.Version.IsAtLeast(sarama.V0_11_0_0),
		"Version is %s: it has no headers, and without them a message has no event id; set 0.11 or newer", s.Version)
	return problems
}
