package franzbridge

import (
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/cloudevents"
)

// errUnsafeConfig: Config.Options has settings that lose, double or misplace messages, or that wait
// for too long. The error names each setting with the reason and the remedy.
var errUnsafeConfig = errors.New("franzbridge: unsafe options")

// Config configures a Publisher. Only Brokers is required.
type Config struct {
	// Brokers are the addresses, as host:port, from which the client learns the cluster.
	Brokers []string
	// PublishTimeout must be the relay's relay.Config.PublishTimeout. The client's time limits are
	// parts of it. It is at least 250 ms. Default: 5 s.
	PublishTimeout time.Duration
	// ClientID names this client in the broker's logs and quotas. Default: "ormoutbox".
	ClientID string
	// CloudEvents sends each event as a CloudEvent: the headers stay, and the CloudEvent's headers
	// come in addition. An event that breaks a rule of CloudEvents is refused when it is recorded.
	// The Mapper is copied, and its Binding is set. Default: none.
	CloudEvents *cloudevents.Mapper
	// Options are applied after this package's options and may change them: TLS, SASL, compression,
	// linger, hooks for metrics and tracing, a logger. Unsafe ones are refused.
	// kgo.MaxBufferedRecords must stay above twice relay.Config.InFlight, or else the relay's
	// workers wait for the client. A hook sees several clients: one more for the messages of
	// refused batches, and new ones after a topic was made again. If it panics at them
	// (kprom.Metrics does), such messages wait with an error.
	Options []kgo.Opt
	// AllowPartitioner accepts a partitioner in Options. A key must stay on the partition on which
	// other producers of the topic put it.
	AllowPartitioner bool
}

const (
	defaultPublishTimeout = 5 * time.Second
	minPublishTimeout     = 250 * time.Millisecond
	leastOverhead         = 100 * time.Millisecond // the least RequestTimeoutOverhead that the client takes
)

// partitioner works as Kafka's Java client: murmur2 of the key, and without a key one partition
// until its batch is full. Its own type distinguishes it from callers' partitioners.
type partitioner struct{ kgo.Partitioner }

// options returns all options of the client. change come last.
func (c Config) options(change ...kgo.Opt) []kgo.Opt {
	t := c.PublishTimeout
	own := []kgo.Opt{
		kgo.SeedBrokers(c.Brokers...), kgo.ClientID(c.ClientID),
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.RecordPartitioner(partitioner{kgo.StickyKeyPartitioner(nil)}),
		kgo.ProducerLinger(0), kgo.ProducerBatchCompression(kgo.NoCompression()),
		// A message is given up when its context ends, even if a broker may have it. Otherwise it
		// would stay in the client, and each retry of the event would add another copy.
		kgo.AllowIdempotentProduceCancellation(),
		// The time limits end in this order: the broker's, the connection's, the publish's.
		kgo.ProduceRequestTimeout(t * 3 / 5), kgo.RequestTimeoutOverhead(max(t/5, leastOverhead)),
		kgo.DialTimeout(t * 2 / 5),
		kgo.RetryBackoffFn(func(failures int) time.Duration { return min(t/50<<min(failures, 10), t/5) }),
		kgo.MetadataMinAge(max(t/20, 10*time.Millisecond)),
		kgo.UnknownTopicRetries(1),
	}
	return append(append(own, c.Options...), change...)
}

// client returns a client that has not connected, or every problem of c.
func (c Config) client(change ...kgo.Opt) (*kgo.Client, error) {
	if len(c.Brokers) == 0 {
		return nil, errors.New("franzbridge: Config.Brokers is empty")
	}
	for i, b := range c.Brokers {
		if b == "" {
			return nil, fmt.Errorf("franzbridge: Config.Brokers[%d] is empty", i)
		}
	}
	switch t := c.PublishTimeout; {
	case t < 0:
		return nil, fmt.Errorf("franzbridge: Config.PublishTimeout %s is negative", t)
	case t < minPublishTimeout:
		return nil, fmt.Errorf("franzbridge: %w", &core.FieldError{
			Format: "{Config.PublishTimeout} %s leaves a broker no time: use at least %s",
			Args:   []any{t, minPublishTimeout},
		})
	}
	client, err := kgo.NewClient(c.options(change...)...)
	if err != nil {
		return nil, fmt.Errorf("franzbridge: %w", err)
	}
	if err := errors.Join(c.unsafe(client)...); err != nil {
		client.Close()
		return nil, fmt.Errorf("%w:\n%w", errUnsafeConfig, err)
	}
	return client, nil
}

// unsafe returns every problem of the client's settings.
func (c Config) unsafe(client *kgo.Client) (problems []error) {
	refuse := func(bad bool, format string, args ...any) {
		if bad {
			problems = append(problems, fmt.Errorf(format, args...))
		}
	}
	is := func(opt any) bool { on, _ := client.OptValue(opt).(bool); return on }
	d := func(opt any) time.Duration { v, _ := client.OptValue(opt).(time.Duration); return v }
	refuse(client.OptValue(kgo.RequiredAcks) != kgo.AllISRAcks(),
		"RequiredAcks is not AllISRAcks: a message that only the leader has is lost with it; leave it out")
	refuse(is(kgo.DisableIdempotentWrite),
		"DisableIdempotentWrite is set: a retry inside the client would store a message twice; leave it out, and "+
			"give the user the right IdempotentWrite where brokers are older than 3.0")
	id, _ := client.OptValue(kgo.TransactionalID).(string)
	refuse(id != "", "TransactionalID is set: the transaction would not be committed; leave it out, consumers "+
		"deduplicate by event id")
	refuse(is(kgo.ManualFlushing), "ManualFlushing is set: messages would not be flushed; leave it out")
	refuse(is(kgo.DefaultProduceTopicAlways), "DefaultProduceTopicAlways is set: events would go to another topic "+
		"than theirs; leave it out")
	refuse(is(kgo.StopProducerOnDataLossDetected), "StopProducerOnDataLossDetected is set: the client would refuse "+
		"everything until the process restarts; leave it out")
	_, ours := client.OptValue(kgo.RecordPartitioner).(partitioner)
	refuse(!c.AllowPartitioner && !ours, "RecordPartitioner is set: a key would move when Debezium, kafkabridge or a "+
		"Java producer sends it; leave it out, or set Config.AllowPartitioner if nobody else writes to the topics")
	retries, _ := client.OptValue(kgo.RecordRetries).(int64)
	refuse(retries < 1, "RecordRetries is %d: every change of a leader fails publishes; leave it out", retries)
	refuse(d(kgo.ProducerLinger) > c.PublishTimeout/2, "ProducerLinger is %s: it holds up every publish; leave it out "+
		"or set a few milliseconds", d(kgo.ProducerLinger))
	for name, wait := range map[string]time.Duration{
		"DialTimeout": d(kgo.DialTimeout), "ProduceRequestTimeout": d(kgo.ProduceRequestTimeout),
	} {
		refuse(wait > c.PublishTimeout, "%s is %s: longer than a publish may take (%s), its answer would come too "+
			"late; set less", name, wait, c.PublishTimeout)
	}
	buffered, _ := client.OptValue(kgo.MaxBufferedBytes).(int64)
	refuse(buffered > 0 && buffered < int64(batchLimit(client)("")), "MaxBufferedBytes is %d: a message that is "+
		"larger would always be refused; set ProducerBatchMaxBytes or more", buffered)
	return problems
}

// batchLimit returns a function for the size of the largest batch, and so of the largest message,
// of a topic.
func batchLimit(client *kgo.Client) func(topic string) int {
	switch limit := client.OptValue(kgo.ProducerBatchMaxBytesFn).(type) {
	case func(string) int32:
		return func(topic string) int { return int(limit(topic)) }
	default:
		return func(string) int { return 1_000_012 }
	}
}
