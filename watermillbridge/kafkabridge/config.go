package kafkabridge

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/ormoutbox/ormoutbox/watermillbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/internal/link"
)

// errUnsafeConfig: Config.Sarama has settings that lose, double or reorder messages, or that wait
// for too long, or SubscriberConfig.Sarama has settings that skip messages. The error names each
// setting with the reason and the remedy. Start from SaramaConfig or SubscriberSaramaConfig.
var errUnsafeConfig = errors.New("kafkabridge: unsafe Sarama configuration")

// Config configures a Publisher. Only Brokers is required.
type Config struct {
	// Brokers are the addresses, as host:port, from which the client learns the cluster.
	Brokers []string
	// PublishTimeout must be the relay's relay.Config.PublishTimeout. Default: 5 s.
	PublishTimeout time.Duration
	// Version is the oldest version of the brokers. Default: 2.8.0, which Kafka 4 understands too.
	Version sarama.KafkaVersion
	// ClientID names this client in the broker's logs and quotas. Default: "ormoutbox".
	ClientID string

	// Sarama replaces the whole configuration of this package, Version and ClientID too. Use it for
	// TLS, SASL or compression. Start from SaramaConfig. Unsafe settings are refused. The
	// configuration is copied.
	//
	// Producer.Idempotent may be false. Net.MaxOpenRequests may then be more than 1. A retry inside
	// Sarama may then store a message twice; consumers recognise the copy by its event id. The
	// first copies of a key still stay in order, because the relay sends an event only after the
	// one before it in its key was acknowledged.
	Sarama *sarama.Config
	// AllowPartitioner accepts a partitioner in Sarama that is not NewPartitioner. A key must stay
	// on the partition on which other producers of the topic put it, so the partitioner must be
	// consistent for messages with a key.
	AllowPartitioner bool

	// Decorate wraps the Watermill publisher, for example for metrics or tracing:
	//
	//	Decorate: func(p message.Publisher) message.Publisher { return traced{p} }
	//
	// The decorator gets one message per call. It must pass the message on, or a copy with the
	// message's context, and return the error that it gets, wrapped or not. Then classes of errors,
	// receipts and limits stay the same. Default: none.
	Decorate func(message.Publisher) message.Publisher

	// Bridge configures the parts that every bridge to Watermill has. Its Classifier sees only
	// errors that this package does not classify. Its Receipt is not used. If its CheckSize is nil
	// and Marshal is not set, CheckSize checks Producer.MaxMessageBytes. If Marshal is set and
	// MaxPayload is 0, MaxPayload becomes Producer.MaxMessageBytes: set it lower if your Marshal
	// adds to the payload, and higher if it compresses it.
	Bridge watermillbridge.Config
}

// SaramaConfig returns the configuration that a Publisher uses, for changes by the caller. Messages
// are acknowledged by all replicas in sync, idempotent, with one request in flight, and partitioned
// as Kafka's Java client does. All waits end within publishTimeout (0: 5 s).
func SaramaConfig(publishTimeout time.Duration) *sarama.Config {
	publishTimeout = cmp.Or(publishTimeout, defaultPublishTimeout)
	c := sarama.NewConfig()
	c.Version = sarama.V2_8_0_0
	c.ClientID = "ormoutbox"

	c.Producer.RequiredAcks = sarama.WaitForAll
	c.Producer.Idempotent = true
	c.Net.MaxOpenRequests = 1
	c.Producer.Partitioner = NewPartitioner
	c.Producer.Return.Successes = true
	c.Producer.Return.Errors = true

	// The time limits end in this order: the broker's, the connection's, the publish's.
	c.Producer.Timeout = publishTimeout * 3 / 5
	c.Net.ReadTimeout, c.Net.WriteTimeout = publishTimeout*4/5, publishTimeout*4/5
	c.Net.DialTimeout = publishTimeout * 2 / 5
	// Retries after a broken connection. Errors of the broker are tried again without a pause, so a
	// change of leaders is left to the relay.
	c.Producer.Retry.Max, c.Producer.Retry.Backoff = 3, publishTimeout/50
	c.Metadata.Retry.Max, c.Metadata.Retry.Backoff = 1, publishTimeout/20
	c.Metadata.Timeout = publishTimeout
	return c
}

const defaultPublishTimeout = 5 * time.Second

// sarama returns the configuration to connect with, or every problem of c.
func (c Config) sarama() (*sarama.Config, error) {
	if len(c.Brokers) == 0 {
		return nil, errors.New("kafkabridge: Config.Brokers is empty")
	}
	for i, b := range c.Brokers {
		if b == "" {
			return nil, fmt.Errorf("kafkabridge: Config.Brokers[%d] is empty", i)
		}
	}
	timeout := c.PublishTimeout
	switch {
	case timeout < 0:
		return nil, fmt.Errorf("kafkabridge: Config.PublishTimeout %s is negative", timeout)
	case timeout == 0:
		timeout = defaultPublishTimeout
	case timeout < 100*time.Millisecond:
		return nil, fmt.Errorf("kafkabridge: Config.PublishTimeout %s leaves a broker no time: use at least 100ms",
			timeout)
	}
	if c.Sarama == nil {
		s := SaramaConfig(timeout)
		if c.Version != (sarama.KafkaVersion{}) {
			s.Version = c.Version
		}
		if c.ClientID != "" {
			s.ClientID = c.ClientID
		}
		if err := s.Validate(); err != nil {
			return nil, fmt.Errorf("kafkabridge: %w", err)
		}
		return s, nil
	}
	s := *c.Sarama
	if err := errors.Join(unsafeSettings(&s, timeout, c.AllowPartitioner)...); err != nil {
		return nil, fmt.Errorf("%w:\n%w", errUnsafeConfig, err)
	}
	if err := s.Validate(); err != nil {
		return nil, fmt.Errorf("kafkabridge: %w", err)
	}
	return &s, nil
}

// unsafeSettings returns every problem of s.
func unsafeSettings(s *sarama.Config, timeout time.Duration, anyPartitioner bool) (problems link.Problems) {
	refuse := problems.Add
	p := &s.Producer
	refuse(p.RequiredAcks != sarama.WaitForAll,
		"Producer.RequiredAcks is %d: a message that only the leader has is lost with it; set sarama.WaitForAll",
		p.RequiredAcks)
	refuse(p.Idempotent && s.Net.MaxOpenRequests != 1,
		"Net.MaxOpenRequests is %d: Sarama's idempotence needs 1; set 1, or Producer.Idempotent to false",
		s.Net.MaxOpenRequests)
	refuse(p.Retry.Max < 1, "Producer.Retry.Max is %d: every change of a leader fails publishes, and idempotence "+
		"needs it; set 1 or more", p.Retry.Max)
	refuse(!p.Return.Successes, "Producer.Return.Successes is false: the outcome would be lost; set true")
	refuse(!p.Return.Errors, "Producer.Return.Errors is false: the outcome would be lost; set true")
	refuse(p.Transaction.ID != "",
		"Producer.Transaction.ID is set: the transaction would not be committed; leave it empty, consumers "+
			"deduplicate by event id")
	refuse(!anyPartitioner && !isOurs(p.Partitioner),
		"Producer.Partitioner is not NewPartitioner: a key would move when Debezium or a Java producer sends it; "+
			"set kafkabridge.NewPartitioner, or Config.AllowPartitioner if nobody else writes to the topics")
	refuse(p.Flush.Frequency == 0 && (p.Flush.Messages > 1 || p.Flush.Bytes > 0),
		"Producer.Flush.Messages or Flush.Bytes without Flush.Frequency: a publish waits for others that never "+
			"come; leave them 0")
	refuse(p.Flush.Frequency > timeout/2, "Producer.Flush.Frequency is %s: it holds up every publish; leave it 0",
		p.Flush.Frequency)

	for _, t := range []struct {
		name string
		d    time.Duration
	}{
		{"Net.DialTimeout", s.Net.DialTimeout},
		{"Net.ReadTimeout", s.Net.ReadTimeout},
		{"Net.WriteTimeout", s.Net.WriteTimeout},
		{"Producer.Timeout", p.Timeout},
		{"Metadata.Timeout", s.Metadata.Timeout},
		{"Producer.Retry.Max * Producer.Retry.Backoff", waits(p.Retry.Max, p.Retry.Backoff, p.Retry.BackoffFunc)},
		{
			"Metadata.Retry.Max * Metadata.Retry.Backoff",
			waits(s.Metadata.Retry.Max, s.Metadata.Retry.Backoff, s.Metadata.Retry.BackoffFunc),
		},
	} {
		refuse(t.d > timeout, "%s is %s: longer than a publish may take (%s), its answer would come too late; set less",
			t.name, t.d, timeout)
	}
	refuse(s.Metadata.Timeout == 0, "Metadata.Timeout is 0: no limit; set %s or less", timeout)
	refuse(p.Timeout >= s.Net.ReadTimeout,
		"Producer.Timeout %s is not shorter than Net.ReadTimeout %s: the connection is given up before the broker "+
			"answers; set less",
		p.Timeout, s.Net.ReadTimeout)
	return problems
}

func isOurs(c sarama.PartitionerConstructor) bool {
	return c != nil && reflect.ValueOf(c).Pointer() == reflect.ValueOf(NewPartitioner).Pointer()
}

// waits returns how long all pauses between retries take together.
func waits(retries int, each time.Duration, f func(retries, maxRetries int) time.Duration) time.Duration {
	retries = min(retries, 10_000)
	if f == nil {
		return time.Duration(retries) * each
	}
	var sum time.Duration
	for i := 1; i <= retries; i++ {
		sum += f(i, retries)
	}
	return sum
}
