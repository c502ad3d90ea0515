package endtoend_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/watermillbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/amqpbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/franzbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/kafkabridge"
)

// broker is a destination, as a service and as its consumers use it.
type broker interface {
	// publisher connects a process to the broker.
	publisher(t *testing.T) core.ReceiptPublisher
	// consume creates the topic and reads all messages of it.
	consume(t *testing.T, topic string) *consumer
	// left returns how many messages of the topic the consumer has not received. It asks the
	// broker, not the consumer, and returns an error while the broker does not answer.
	left(t *testing.T, topic string, c *consumer) (int, error)
}

// arrival is one message as the consumer got it.
type arrival struct {
	delivery core.Delivery
	metadata message.Metadata

	place     string // the receipt that the publisher must have got; empty if the consumer cannot know it
	key       string // Kafka's own key
	partition int32
	offset    int64
}

// consumer keeps the messages in the order of their arrival.
type consumer struct {
	mu       sync.Mutex
	arrivals []arrival
	rows     map[core.RowID]int // arrivals by row
	seen     map[int32]int64    // Kafka: the next offset by partition
	strange  []error
}

func (c *consumer) read(messages <-chan *message.Message) {
	for msg := range messages {
		c.add(msg)
		msg.Ack()
	}
}

func (c *consumer) add(msg *message.Message) {
	d, err := watermillbridge.EventFromMessage(msg)
	a := arrival{delivery: d, metadata: msg.Metadata}
	a.place, _ = msg.Context().Value(placeKey{}).(string)
	a.partition, _ = kafka.MessagePartitionFromCtx(msg.Context())
	a.offset, _ = kafka.MessagePartitionOffsetFromCtx(msg.Context())
	key, _ := kafka.MessageKeyFromCtx(msg.Context())
	a.key = string(key)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.strange = append(c.strange, err)
		return
	}
	c.arrivals = append(c.arrivals, a)
	c.rows[d.RowID]++
	c.seen[a.partition] = max(c.seen[a.partition], a.offset+1)
}

// distinct returns how many rows have arrived.
func (c *consumer) distinct() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.rows)
}

type placeKey struct{}

// placed tells the consumer where the broker has a message.
func placed(msg *message.Message, place string) *message.Message {
	msg.SetContext(context.WithValue(msg.Context(), placeKey{}, place))
	return msg
}

// places returns from how many different places messages have come.
func (c *consumer) places() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := map[string]bool{}
	for _, a := range c.arrivals {
		all[a.place] = true
	}
	return len(all)
}

// startConsumer reads messages until the test ends.
func startConsumer(t *testing.T, subscribe func(ctx context.Context) (<-chan *message.Message, error)) *consumer {
	t.Helper()
	c := &consumer{rows: map[core.RowID]int{}, seen: map[int32]int64{}}
	ctx, cancel := context.WithCancel(context.Background())
	messages, err := subscribe(ctx)
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); c.read(messages) }()
	t.Cleanup(func() { cancel(); <-done })
	return c
}

func closePublisher[P interface {
	core.ReceiptPublisher
	Close(ctx context.Context) error
}](t *testing.T, pub P, err error,
) core.ReceiptPublisher {
	t.Helper()
	fixture.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := pub.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return pub
}

// kafkaBroker is Apache Kafka.
type kafkaBroker struct {
	address string
	franz   bool // the bridge is franzbridge
}

const kafkaPartitions = 4

func (k kafkaBroker) publisher(t *testing.T) core.ReceiptPublisher {
	t.Helper()
	if k.franz {
		pub, err := franzbridge.NewPublisher(franzbridge.Config{Brokers: []string{k.address}})
		return closePublisher(t, pub, err)
	}
	pub, err := kafkabridge.NewPublisher(kafkabridge.Config{Brokers: []string{k.address}})
	return closePublisher(t, pub, err)
}

func (k kafkaBroker) config() *sarama.Config {
	c := kafka.DefaultSaramaSubscriberConfig()
	c.Version = sarama.V2_8_0_0
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	// On a slow machine a consumer may be silent for some seconds. The group would deliver again
	// then.
	c.Consumer.Group.Session.Timeout, c.Consumer.Group.Heartbeat.Interval = 30*time.Second, time.Second
	c.Metadata.Retry.Max, c.Metadata.Retry.Backoff = 2, 200*time.Millisecond
	return c
}

func (k kafkaBroker) consume(t *testing.T, topic string) *consumer {
	t.Helper()
	admin, err := sarama.NewClusterAdmin([]string{k.address}, k.config())
	fixture.NoError(t, err)
	defer admin.Close()
	detail := &sarama.TopicDetail{NumPartitions: kafkaPartitions, ReplicationFactor: 1}
	fixture.NoError(t, admin.CreateTopic(topic, detail, false))
	sub, err := kafka.NewSubscriber(kafka.SubscriberConfig{
		Brokers: []string{k.address}, Unmarshaler: kafka.DefaultMarshaler{}, ConsumerGroup: topic + ".group",
		OverwriteSaramaConfig: k.config(), ReconnectRetrySleep: 200 * time.Millisecond,
	}, watermill.NopLogger{})
	fixture.NoError(t, err)
	t.Cleanup(func() {
		if err := sub.Close(); err != nil {
			t.Error(err)
		}
	})
	return startConsumer(t,
		func(ctx context.Context) (<-chan *message.Message, error) { return sub.Subscribe(ctx, topic) })
}

func (k kafkaBroker) left(_ *testing.T, topic string, c *consumer) (int, error) {
	client, err := sarama.NewClient([]string{k.address}, k.config())
	if err != nil {
		return 0, err
	}
	defer client.Close()
	left := 0
	for p := range int32(kafkaPartitions) {
		end, err := client.GetOffset(topic, p, sarama.OffsetNewest)
		if err != nil {
			return 0, err
		}
		c.mu.Lock()
		left += int(end - c.seen[p])
		c.mu.Unlock()
	}
	return left, nil
}

// rabbitBroker is RabbitMQ: a topic is a durable queue.
type rabbitBroker struct{ uri string }

func (r rabbitBroker) publisher(t *testing.T) core.ReceiptPublisher {
	t.Helper()
	pub, err := amqpbridge.NewPublisher(amqpbridge.Config{AMQP: amqpbridge.QueueConfig(r.uri)})
	return closePublisher(t, pub, err)
}

func (r rabbitBroker) consume(t *testing.T, topic string) *consumer {
	t.Helper()
	cfg := amqpbridge.QueueConfig(r.uri)
	cfg.Consume.Qos.PrefetchCount = 50
	cfg.Connection.Reconnect = amqp.DefaultReconnectConfig()
	cfg.Connection.Reconnect.BackoffInitialInterval, cfg.Connection.Reconnect.BackoffMaxInterval = 200*time.Millisecond,
		time.Second
	sub, err := amqp.NewSubscriber(cfg, watermill.NopLogger{})
	fixture.NoError(t, err)
	t.Cleanup(func() {
		if err := sub.Close(); err != nil {
			t.Error(err)
		}
		r.channel(t,
			func(ch *amqp091.Channel) error { _, err := ch.QueueDelete(topic, false, false, false); return err })
	})
	return startConsumer(t,
		func(ctx context.Context) (<-chan *message.Message, error) { return sub.Subscribe(ctx, topic) })
}

func (r rabbitBroker) left(_ *testing.T, topic string, _ *consumer) (n int, err error) {
	conn, err := amqp091.Dial(r.uri)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		return 0, err
	}
	q, err := ch.QueueDeclarePassive(topic, true, false, false, false, nil)
	return q.Messages, err
}

func (r rabbitBroker) channel(t *testing.T, fn func(*amqp091.Channel) error) {
	t.Helper()
	conn, err := amqp091.Dial(r.uri)
	if err != nil {
		t.Error(err)
		return
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err == nil {
		err = fn(ch)
	}
	if err != nil {
		t.Error(err)
	}
}
