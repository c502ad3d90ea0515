package brokers_test

import (
	"context"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	wmnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	wmsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"
	"github.com/nats-io/nats.go"
	"github.com/rabbitmq/amqp091-go"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/topics"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
	"github.com/ormoutbox/ormoutbox/watermillbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/amqpbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/natsbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/redisbridge"
)

// pubSub is a Pub/Sub of Watermill: an outbox and its relay on one side, and Watermill's subscriber
// of a broker on the other.
type pubSub struct {
	features tests.Features

	publisher  func(t *testing.T) core.Publisher // of the relay
	subscriber func(t *testing.T, group string) message.Subscriber
	group      string // of subscribers for which the suite names none; empty: each has one of its own
	fresh      bool   // a new group receives old messages, which group hides from the suite
	inOrder    bool   // the order of keys is kept, although another test of GuaranteedOrder fails
	waits      bool   // Publish returns when the broker has the messages, as that of a broker does

	// alone makes everything anew for each test of the suite, in place of the two above.
	alone func(t *testing.T) (core.Publisher, message.Subscriber)
}

// Watermill's own suite for a Pub/Sub passes with an outbox and a relay between its publisher and
// each broker. Each call of the publisher is a transaction of its own.
func TestWatermillUniversalSuite(t *testing.T) {
	t.Parallel()
	brokers := map[string]func(t *testing.T) pubSub{"nats": natsPubSub, "channels": channelPubSub}
	if !testing.Short() { // `make test-long` runs these too
		maps.Copy(brokers, map[string]func(t *testing.T) pubSub{
			"kafka": kafkaPubSub(false), "franz": kafkaPubSub(true),
			"rabbitmq": rabbitPubSub, "rabbitmq quorum": rabbitQuorumPubSub,
			"redis": redisPubSub, "http": httpPubSub, "sql": sqlPubSub,
		})
	}
	for name, open := range brokers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			s.features.ForceShort = true // thousands of messages take minutes for each broker, and find no more
			if s.alone != nil {
				tests.TestPubSub(t, s.features, func(t *testing.T) (message.Publisher, message.Subscriber) {
					t.Helper()
					pub, sub := s.alone(t)
					return overOutbox(t, testdb.SQLite(t), pub), sub
				}, nil)
				return
			}
			outbox := overOutbox(t, testdb.Postgres(t), s.publisher(t))
			outbox.waits = s.waits
			inGroup := func(t *testing.T, group string) (message.Publisher, message.Subscriber) {
				t.Helper()
				return outbox, s.subscriber(t, group)
			}
			tests.TestPubSub(t, s.features, func(t *testing.T) (message.Publisher, message.Subscriber) {
				t.Helper()
				group := s.group
				if group == "" {
					group = watermill.NewShortUUID()
				}
				return inGroup(t, group)
			}, inGroup)
			if s.fresh {
				f := s.features
				f.NewSubscriberReceivesOldMessages = true
				s.more(t, "TestNewSubscriberReceivesOldMessages", f, tests.TestNewSubscriberReceivesOldMessages,
					func(t *testing.T) (message.Publisher, message.Subscriber) {
						t.Helper()
						return inGroup(t, watermill.NewShortUUID())
					})
			}
			if s.inOrder {
				f := s.features
				f.GuaranteedOrder = true
				s.more(t, "TestPublishSubscribeInOrder", f, tests.TestPublishSubscribeInOrder,
					func(t *testing.T) (message.Publisher, message.Subscriber) { t.Helper(); return inGroup(t, "") })
			}
		})
	}
}

// more runs a test of the suite with other features than the rest.
func (pubSub) more(t *testing.T, name string, f tests.Features,
	test func(*testing.T, tests.TestContext, tests.PubSubConstructor), make tests.PubSubConstructor,
) {
	t.Helper()
	t.Run("more "+name, func(t *testing.T) {
		t.Parallel()
		test(t, tests.TestContext{TestID: tests.NewTestID(), Features: f}, make)
	})
}

// outboxPublisher is a message.Publisher that writes to an outbox.
type outboxPublisher struct {
	process *fixture.Process
	bridge  *watermillbridge.OutboxPublisher
	waits   bool
}

// overOutbox runs a relay to p until the test ends. No event may be dead then.
func overOutbox(t *testing.T, db testdb.DB, p core.Publisher) outboxPublisher {
	t.Helper()
	process := fixture.NewProcess(t, db, core.Config{Publisher: p})
	bridge, err := watermillbridge.NewOutboxPublisher(process.Outbox, watermillbridge.OutboxConfig{
		// The suite compares the order of messages that have one payload. Most have the payload
		// "x" and no order: they go to one partition, but not one after another.
		Event: func(_ string, msg *message.Message, e *core.Event) error {
			e.Key = string(msg.Payload)
			e.Unordered = e.Key == "x"
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, row := range process.Rows() {
			if row.Status == fixture.StatusDead {
				t.Errorf("an event is dead: %+v", row)
			}
		}
	})
	process.Run()
	return outboxPublisher{process: process, bridge: bridge}
}

// Publish implements message.Publisher.
func (o outboxPublisher) Publish(topic string, messages ...*message.Message) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err := o.process.Tx.RunInTx(ctx, func(_ context.Context, tx core.Tx) error {
		return o.bridge.InTx(tx).Publish(topic, messages...)
	})
	if err != nil || !o.waits {
		return err
	}
	var ids []string
	for _, msg := range messages {
		ids = append(ids, msg.UUID)
	}
	for open := 1; open > 0; {
		if err := o.process.Pool.QueryRowContext(ctx, `SELECT COUNT(*) FROM outbox_event WHERE topic = $1 AND `+
			`event_id = ANY($2) AND status <> 1`, topic, ids).Scan(&open); err != nil {
			return err
		}
	}
	return nil
}

// Close implements message.Publisher. The relay goes on.
func (o outboxPublisher) Close() error { return nil }

// ownTopics names the topics of a test of the suite so that they can be removed.
func ownTopics(prefix string) func(tests.TestContext) string {
	return func(c tests.TestContext) string { return prefix + "-" + string(c.TestID) }
}

func must[T any](t *testing.T) func(v T, err error) T {
	t.Helper()
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func kafkaPubSub(franz bool) func(t *testing.T) pubSub {
	return func(t *testing.T) pubSub {
		t.Helper()
		k := kafkaBroker{addresses: []string{topics.KafkaAddress(t)}, franz: franz}
		prefix := topics.KafkaName()
		admin := k.admin(t)
		t.Cleanup(func() {
			all, err := admin.ListTopics()
			if err != nil {
				t.Error(err)
			}
			for name := range all {
				if strings.HasPrefix(name, prefix) {
					_ = admin.DeleteTopic(name)
				}
			}
		})
		return pubSub{
			features: tests.Features{
				ConsumerGroups:      true,
				ExactlyOnceDelivery: false, // a message that was nacked comes again
				GuaranteedOrder:     true,
				Persistent:          true,
				// The suite wants one group, in which subscribers share the messages.
				NewSubscriberReceivesOldMessages: false,
				GenerateTopicFunc:                ownTopics(prefix),
			},
			publisher: func(t *testing.T) core.Publisher { t.Helper(); return k.publisher(t, 0) },
			subscriber: func(t *testing.T, group string) message.Subscriber {
				t.Helper()
				cfg := kafka.DefaultSaramaSubscriberConfig()
				cfg.Consumer.Offsets.Initial = sarama.OffsetOldest
				cfg.Consumer.Group.Heartbeat.Interval = 500 * time.Millisecond
				cfg.Consumer.Group.Rebalance.Timeout = 3 * time.Second
				return must[*kafka.Subscriber](t)(kafka.NewSubscriber(kafka.SubscriberConfig{
					Brokers: k.addresses, Unmarshaler: kafka.DefaultMarshaler{}, OverwriteSaramaConfig: cfg,
					ConsumerGroup:          prefix + "-" + group,
					InitializeTopicDetails: &sarama.TopicDetail{NumPartitions: 6, ReplicationFactor: 1},
				}, watermill.NopLogger{}))
			},
			group: "suite", fresh: true,
		}
	}
}

// rabbitNames remembers exchanges and queues, and removes them at the end.
type rabbitNames struct {
	mu                sync.Mutex
	exchanges, queues map[string]bool
}

func newRabbitNames(t *testing.T, r *rabbitBroker) *rabbitNames {
	t.Helper()
	n := &rabbitNames{exchanges: map[string]bool{}, queues: map[string]bool{}}
	t.Cleanup(func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		if err := r.channel(func(ch *amqp091.Channel) error {
			for name := range n.queues {
				if _, err := ch.QueueDelete(name, false, false, false); err != nil {
					return err
				}
			}
			for name := range n.exchanges {
				if err := ch.ExchangeDelete(name, false, false); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	})
	return n
}

func (n *rabbitNames) note(exchange, queue string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.queues[queue] = true; exchange != "" {
		n.exchanges[exchange] = true
	}
	return queue
}

// rabbitPubSub has an exchange for each topic, and a queue for each group.
func rabbitPubSub(t *testing.T) pubSub {
	t.Helper()
	uri := topics.RabbitURI(t)
	names := newRabbitNames(t, &rabbitBroker{uri: uri})
	return pubSub{
		features: tests.Features{
			ConsumerGroups:      true,
			ExactlyOnceDelivery: false, // a message that was nacked comes again
			GuaranteedOrder:     true,
			// Several subscribers of a queue get messages in turns, whatever their keys.
			GuaranteedOrderWithSingleSubscriber: true,
			Persistent:                          true,
			NewSubscriberReceivesOldMessages:    false, // a queue gets messages once it is declared
		},
		publisher: func(t *testing.T) core.Publisher {
			t.Helper()
			return topics.RabbitPublisher(t, amqpbridge.Config{AMQP: amqpbridge.PubSubConfig(uri, nil)})
		},
		subscriber: func(t *testing.T, group string) message.Subscriber {
			t.Helper()
			cfg := amqpbridge.PubSubConfig(uri, func(topic string) string {
				return names.note(topic, topic+"_"+group)
			})
			return must[*amqp.Subscriber](t)(amqp.NewSubscriber(cfg, watermill.NopLogger{}))
		},
		group: "suite",
	}
}

// rabbitQuorumPubSub has a quorum queue for each topic.
func rabbitQuorumPubSub(t *testing.T) pubSub {
	t.Helper()
	s := rabbitPubSub(t)
	uri := topics.RabbitURI(t)
	names := newRabbitNames(t, &rabbitBroker{uri: uri})
	cfg := amqpbridge.QueueConfig(uri)
	cfg.Queue.GenerateName = func(topic string) string { return names.note("", topic) }
	cfg.Queue.Arguments = amqp091.Table{"x-queue-type": "quorum"}
	s.features.ConsumerGroups = false // all subscribers of a topic share its queue
	s.publisher = func(t *testing.T) core.Publisher {
		t.Helper()
		return topics.RabbitPublisher(t, amqpbridge.Config{AMQP: cfg, DeclareQueues: true})
	}
	s.subscriber = func(t *testing.T, _ string) message.Subscriber {
		t.Helper()
		return must[*amqp.Subscriber](t)(amqp.NewSubscriber(cfg, watermill.NopLogger{}))
	}
	return s
}

func natsPubSub(t *testing.T) pubSub {
	t.Helper()
	url := topics.NATSURL(t)
	prefix := "it-" + core.NewEventID()
	js := topics.JetStream(t, url)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		for name := range js.StreamNames(ctx).Name() {
			if strings.HasPrefix(name, prefix) {
				if err := js.DeleteStream(ctx, name); err != nil {
					t.Error(err)
				}
			}
		}
	})
	return pubSub{
		features: tests.Features{
			ConsumerGroups:      true,
			ExactlyOnceDelivery: false, // a message that was nacked comes again
			GuaranteedOrder:     true,
			// Several subscribers of a group get messages in turns, whatever their keys.
			GuaranteedOrderWithSingleSubscriber: true,
			Persistent:                          true,
			NewSubscriberReceivesOldMessages:    true,
			GenerateTopicFunc:                   ownTopics(prefix),
		},
		publisher: func(t *testing.T) core.Publisher {
			t.Helper()
			return topics.NATSPublisher(t, natsbridge.Config{URL: url})
		},
		subscriber: func(t *testing.T, group string) message.Subscriber {
			t.Helper()
			return must[*wmnats.Subscriber](t)(wmnats.NewSubscriber(wmnats.SubscriberConfig{
				URL: url, QueueGroupPrefix: group, SubscribersCount: 1, AckWaitTimeout: 30 * time.Second,
				CloseTimeout: 30 * time.Second, Unmarshaler: &wmnats.NATSMarshaler{},
				JetStream: wmnats.JetStreamConfig{
					SubscribeOptions: []nats.SubOpt{nats.DeliverAll(), nats.AckExplicit()}, DurablePrefix: group,
				},
			}, watermill.NopLogger{}))
		},
	}
}

func redisPubSub(t *testing.T) pubSub {
	t.Helper()
	url := topics.RedisURL(t)
	prefix := "it-" + core.NewEventID()
	client := topics.RedisAt(t, url)
	t.Cleanup(func() {
		ctx := context.Background()
		if keys := client.Keys(ctx, prefix+"*").Val(); len(keys) > 0 {
			client.Del(ctx, keys...)
		}
	})
	return pubSub{
		features: tests.Features{
			ConsumerGroups:      true,
			ExactlyOnceDelivery: false, // a message that was nacked comes again
			// A subscriber takes messages over from others that are gone, and they are older ones.
			GuaranteedOrder:                  false,
			Persistent:                       true,
			NewSubscriberReceivesOldMessages: true,
			GenerateTopicFunc:                ownTopics(prefix),
		},
		publisher: func(t *testing.T) core.Publisher {
			t.Helper()
			return topics.RedisPublisher(t, url, redisbridge.Config{})
		},
		subscriber: func(t *testing.T, group string) message.Subscriber {
			t.Helper()
			return must[*redisstream.Subscriber](t)(redisstream.NewSubscriber(redisstream.SubscriberConfig{
				Client: topics.RedisAt(t, url), Consumer: watermill.NewShortUUID(), ConsumerGroup: group,
				BlockTime: 10 * time.Millisecond, ClaimInterval: 3 * time.Second, MaxIdleTime: 5 * time.Second,
			}, watermill.NopLogger{}))
		},
	}
}

func sqlPubSub(t *testing.T) pubSub {
	t.Helper()
	// On a server of its own, for the same reason: transactions of other databases count, too.
	_, db := fixture.StartPrivateDatabase(t, "postgres")
	s := newSQLBroker(t, db)
	return pubSub{
		features: tests.Features{
			ConsumerGroups:      true,
			ExactlyOnceDelivery: true, // the offset is in a table that the subscriber locks
			GuaranteedOrder:     true,
			Persistent:          true,
			// The suite wants one group, in which subscribers share the messages.
			NewSubscriberReceivesOldMessages: false,
		},
		publisher: func(t *testing.T) core.Publisher { t.Helper(); return s.publisher(t, 0) },
		subscriber: func(t *testing.T, group string) message.Subscriber {
			t.Helper()
			// A pool of its own, because it keeps a connection until its message is acknowledged.
			db := wmsql.BeginnerFromStdSQL(s.db.Open(t))
			return must[*wmsql.Subscriber](t)(wmsql.NewSubscriber(db, wmsql.SubscriberConfig{
				ConsumerGroup: group, PollInterval: 5 * time.Millisecond, ResendInterval: 5 * time.Millisecond,
				SchemaAdapter: sqlSchema(), OffsetsAdapter: wmsql.DefaultPostgreSQLOffsetsAdapter{},
			}, watermill.NopLogger{}))
		},
		group: "suite", fresh: true,
		// A message that is not acknowledged is an open transaction. Meanwhile no other subscriber
		// gets a younger message. The suite reads from one subscriber after the other, so all
		// messages have to be older than the first subscriber.
		waits: true,
	}
}

func channelPubSub(*testing.T) pubSub {
	return pubSub{
		features: tests.Features{
			ConsumerGroups:      false, // every subscriber gets every message
			ExactlyOnceDelivery: true,
			// A channel that remembers messages, which the suite needs, gives them to a new
			// subscriber in any order.
			GuaranteedOrder:       false,
			Persistent:            false, // messages end with the channel
			RequireSingleInstance: true,
		},
		alone: func(t *testing.T) (core.Publisher, message.Subscriber) {
			t.Helper()
			channel := gochannel.NewGoChannel(gochannel.Config{
				OutputChannelBuffer: 1000, Persistent: true,
			}, watermill.NopLogger{})
			p := must[*watermillbridge.Publisher](t)(watermillbridge.NewPublisher(channel, watermillbridge.Config{}))
			topics.CloseAtEnd(t, p)
			return p, channel
		},
	}
}
