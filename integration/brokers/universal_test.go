package brokers_test

import (
	"context"
	"flag"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	wmsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rabbitmq/amqp091-go"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/relay"
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
	name  string
	open  func(t *testing.T, prefix string) ends // prefix begins the names of topics
	short bool                                   // `make test` runs it too, with few messages

	features tests.Features // without the features that all have

	group   string // for subscribers for which the suite names no group; empty: each has its own
	fresh   bool   // a new group receives old messages; group hides that from the suite
	inOrder bool   // the order of keys is kept, although another test of GuaranteedOrder fails
	waits   bool   // Publish returns only when the broker has the messages
	alone   bool   // each test of the suite opens it anew
	bare    bool   // topics have no prefix
}

// ends are the two sides of an open pubSub.
type ends struct {
	publisher  func(t *testing.T) core.Publisher // of the relay
	subscriber func(t *testing.T, group string) message.Subscriber
}

// pubSubs has all brokers. ExactlyOnceDelivery is false where a message that was nacked comes
// again.
var pubSubs = []pubSub{{
	name: "kafka", open: openKafkaEnds(false), features: kafkaFeatures, group: "suite", fresh: true,
}, {
	name: "franz", open: openKafkaEnds(true), features: kafkaFeatures, group: "suite", fresh: true,
}, {
	name: "rabbitmq", open: openRabbitEnds, group: "suite",
	features: tests.Features{
		ConsumerGroups: true, GuaranteedOrder: true, Persistent: true,
		// Several subscribers of a queue get messages in turns, whatever their keys.
		GuaranteedOrderWithSingleSubscriber: true,
		NewSubscriberReceivesOldMessages:    false, // a queue gets messages once it is declared
	},
}, {
	name: "rabbitmq quorum", open: openRabbitQuorumEnds, group: "suite",
	features: tests.Features{
		ConsumerGroups:  false, // all subscribers of a topic share its queue
		GuaranteedOrder: true, GuaranteedOrderWithSingleSubscriber: true, Persistent: true,
	},
}, {
	name: "nats", open: openNATSEnds, short: true, group: "suite", fresh: true,
	features: tests.Features{
		ConsumerGroups: true, GuaranteedOrder: true, Persistent: true,
	},
}, {
	name: "redis", open: openRedisEnds, group: "suite", fresh: true,
	features: tests.Features{
		ConsumerGroups: true, Persistent: true,
		// A subscriber takes over the older messages of subscribers that are gone.
		GuaranteedOrder: false,
	},
}, {
	name: "http", open: openHTTPEnds, inOrder: true,
	features: tests.Features{
		ConsumerGroups: false, // a topic has one receiver
		// Events without an order are sent at once, so a receiver gets the next one before it has
		// answered to the first.
		GuaranteedOrder:                  false,
		Persistent:                       true,  // messages wait in the outbox for a receiver
		NewSubscriberReceivesOldMessages: false, // a receiver keeps no messages for others
		RequireSingleInstance:            true,  // the newest receiver of a topic gets all
	},
}, {
	name: "sql", open: openSQLEnds, group: "suite", fresh: true,
	bare: true, // PostgreSQL would cut longer names of tables
	features: tests.Features{
		ConsumerGroups: true, GuaranteedOrder: true, Persistent: true,
		ExactlyOnceDelivery: true, // the offset is in a table that the subscriber locks
		// The suite wants one group, in which subscribers share the messages.
		NewSubscriberReceivesOldMessages: false,
	},
	// A message that is not acknowledged is an open transaction. Meanwhile no other subscriber gets
	// a younger message. The suite reads from one subscriber after the other, so all messages have
	// to be older than the first subscriber.
	waits: true,
}, {
	name: "channels", open: openChannelEnds, short: true, alone: true,
	features: tests.Features{
		ConsumerGroups: false, // every subscriber gets every message
		// A channel that remembers messages, which the suite needs, gives them to a new subscriber
		// in any order.
		GuaranteedOrder:     false,
		Persistent:          false, // messages end with the channel
		ExactlyOnceDelivery: true, RequireSingleInstance: true,
	},
}}

var kafkaFeatures = tests.Features{
	ConsumerGroups: true, GuaranteedOrder: true, Persistent: true,
	// The suite wants one group, in which subscribers share the messages.
	NewSubscriberReceivesOldMessages: false,
}

// With this flag each server gets the thousands of messages of the suite, as Go channels always do.
// Each broker alone takes half a minute to two minutes. The suite waits 45 s for most messages, and
// a busy machine may need longer.
var whole = flag.Bool("universal.whole", false, "publish thousands of messages to each server in Watermill's suite")

// Watermill's own suite for a Pub/Sub passes with an outbox and a relay between its publisher and
// each broker. Each call of the publisher is a transaction of its own.
func TestWatermillUniversalSuite(t *testing.T) {
	t.Parallel()
	for _, p := range pubSubs {
		if testing.Short() && !p.short {
			continue // `make test-all` runs it
		}
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			p.run(t)
		})
	}
}

func (p pubSub) run(t *testing.T) {
	t.Helper()
	prefix := "it-" + core.NewEventID()
	f := p.features
	f.ForceShort = !p.alone && !*whole
	if !p.bare { // so that the topics can be removed by their prefix
		f.GenerateTopicFunc = func(c tests.TestContext) string { return prefix + "-" + string(c.TestID) }
	}
	if p.alone {
		tests.TestPubSub(t, f, func(t *testing.T) (message.Publisher, message.Subscriber) {
			t.Helper()
			e := p.open(t, prefix)
			return overOutbox(t, testdb.SQLite(t), e.publisher(t)), e.subscriber(t, "")
		}, nil)
		return
	}
	e := p.open(t, prefix)
	outbox := overOutbox(t, testdb.Postgres(t), e.publisher(t))
	outbox.waits = p.waits
	inGroup := func(t *testing.T, group string) (message.Publisher, message.Subscriber) {
		t.Helper()
		return outbox, e.subscriber(t, group)
	}
	inNew := func(t *testing.T) (message.Publisher, message.Subscriber) {
		t.Helper()
		return inGroup(t, watermill.NewShortUUID())
	}
	usual := inNew
	if p.group != "" {
		usual = func(t *testing.T) (message.Publisher, message.Subscriber) { t.Helper(); return inGroup(t, p.group) }
	}
	tests.TestPubSub(t, f, usual, inGroup)
	for _, more := range []struct {
		name string
		runs bool
		set  *bool
		test func(*testing.T, tests.TestContext, tests.PubSubConstructor)
	}{
		{
			"TestNewSubscriberReceivesOldMessages", p.fresh, &f.NewSubscriberReceivesOldMessages,
			tests.TestNewSubscriberReceivesOldMessages,
		},
		{"TestPublishSubscribeInOrder", p.inOrder, &f.GuaranteedOrder, tests.TestPublishSubscribeInOrder},
	} {
		if !more.runs {
			continue
		}
		*more.set = true // the tests above have copies of Features
		with := tests.TestContext{TestID: tests.NewTestID(), Features: f}
		*more.set = false
		t.Run("more "+more.name, func(t *testing.T) {
			t.Parallel()
			more.test(t, with, inNew)
		})
	}
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
	process := fixture.NewProcess(t, db, core.Config{
		Publisher: p, // a subscriber of the suite may refuse each message a hundred times
		Relay: relay.Config{
			Breaker: relay.BreakerPolicy{ProbeInterval: 10 * time.Millisecond, MaxProbeInterval: 20 * time.Millisecond},
		},
	})
	bridge, err := watermillbridge.NewOutboxPublisher(process.Outbox, watermillbridge.OutboxConfig{
		// The suite compares the order of messages with the same payload. Most have the payload
		// "x" and no order: they go to one partition, but not one after another.
		Event: func(_ string, msg *message.Message, e *core.Event) error {
			e.Key = string(msg.Payload)
			e.Unordered = e.Key == "x"
			return nil
		},
	})
	fixture.NoError(t, err)
	t.Cleanup(func() {
		for _, row := range process.Rows() {
			fixture.Check(t, row.Status != fixture.StatusDead, "an event is dead: %+v", row)
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
		<-time.After(2 * time.Millisecond) // without this the database has no time for the relay
	}
	return nil
}

// Close implements message.Publisher. The relay goes on.
func (o outboxPublisher) Close() error { return nil }

func must[T any](t *testing.T) func(v T, err error) T {
	t.Helper()
	return func(v T, err error) T {
		t.Helper()
		fixture.NoError(t, err)
		return v
	}
}

func openKafkaEnds(franz bool) func(t *testing.T, prefix string) ends {
	return func(t *testing.T, prefix string) ends {
		t.Helper()
		k := kafkaBroker{addresses: []string{topics.KafkaAddress(t)}, franz: franz}
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
		return ends{
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
		}
	}
}

// rabbitNames remembers exchanges and queues, and deletes them when the test ends.
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

// openRabbitEnds uses an exchange for each topic, and a classic queue for each group.
func openRabbitEnds(t *testing.T, _ string) ends {
	t.Helper()
	uri := topics.RabbitURI(t)
	names := newRabbitNames(t, &rabbitBroker{uri: uri})
	return ends{
		publisher: func(t *testing.T) core.Publisher {
			t.Helper()
			return topics.RabbitPublisher(t, amqpbridge.Config{AMQP: amqpbridge.PubSubConfig(uri, nil)})
		},
		subscriber: func(t *testing.T, group string) message.Subscriber {
			t.Helper()
			cfg := amqpbridge.PubSubConfig(uri, func(topic string) string {
				return names.note(topic, topic+"_"+group)
			})
			cfg.Queue.Arguments = queueType(false)
			return must[*amqp.Subscriber](t)(amqp.NewSubscriber(cfg, watermill.NopLogger{}))
		},
	}
}

// openRabbitQuorumEnds uses a quorum queue for each topic.
func openRabbitQuorumEnds(t *testing.T, _ string) ends {
	t.Helper()
	uri := topics.RabbitURI(t)
	names := newRabbitNames(t, &rabbitBroker{uri: uri})
	cfg := amqpbridge.QueueConfig(uri)
	cfg.Queue.GenerateName = func(topic string) string { return names.note("", topic) }
	cfg.Queue.Arguments = queueType(true)
	return ends{
		publisher: func(t *testing.T) core.Publisher {
			t.Helper()
			return topics.RabbitPublisher(t, amqpbridge.Config{AMQP: cfg, DeclareQueues: true})
		},
		subscriber: func(t *testing.T, _ string) message.Subscriber {
			t.Helper()
			return must[*amqp.Subscriber](t)(amqp.NewSubscriber(cfg, watermill.NopLogger{}))
		},
	}
}

func openNATSEnds(t *testing.T, prefix string) ends {
	t.Helper()
	url := topics.NATSURL(t)
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
	return ends{
		publisher: func(t *testing.T) core.Publisher {
			t.Helper()
			return topics.NATSPublisher(t, natsbridge.Config{URL: url})
		},
		subscriber: func(t *testing.T, group string) message.Subscriber {
			t.Helper()
			s := must[*natsbridge.Subscriber](t)(natsbridge.NewSubscriber(natsbridge.SubscriberConfig{
				URL: url, Group: group, AckWait: 5 * time.Second, NackPause: time.Millisecond,
				CloseTimeout: 50 * time.Millisecond, // the suite closes subscribers that have a message
			}))
			return natsSubscriber{s, js}
		},
	}
}

// natsSubscriber makes the streams of topics.
type natsSubscriber struct {
	*natsbridge.Subscriber
	js jetstream.JetStream
}

// SubscribeInitialize implements message.SubscribeInitializer.
func (s natsSubscriber) SubscribeInitialize(topic string) error {
	_, err := s.js.CreateOrUpdateStream(context.Background(), jetstream.StreamConfig{
		Name: topic, Subjects: []string{topic},
	})
	return err
}

func openRedisEnds(t *testing.T, prefix string) ends {
	t.Helper()
	url := topics.RedisURL(t)
	client := topics.RedisAt(t, url)
	t.Cleanup(func() {
		ctx := context.Background()
		if keys := client.Keys(ctx, prefix+"*").Val(); len(keys) > 0 {
			client.Del(ctx, keys...)
		}
	})
	return ends{
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

func openSQLEnds(t *testing.T, _ string) ends {
	t.Helper()
	// On a server of its own, because open transactions of other databases count, too.
	_, db := fixture.StartPrivateDatabase(t, "postgres")
	s := newSQLBroker(t, db)
	return ends{
		publisher: func(t *testing.T) core.Publisher { t.Helper(); return s.publisher(t, 0) },
		subscriber: func(t *testing.T, group string) message.Subscriber {
			t.Helper()
			// Each subscriber needs a pool: it keeps a connection until its message is
			// acknowledged.
			db := wmsql.BeginnerFromStdSQL(s.db.Open(t))
			return must[*wmsql.Subscriber](t)(wmsql.NewSubscriber(db, wmsql.SubscriberConfig{
				ConsumerGroup: group, PollInterval: 5 * time.Millisecond, ResendInterval: 5 * time.Millisecond,
				SchemaAdapter: sqlSchema(), OffsetsAdapter: wmsql.DefaultPostgreSQLOffsetsAdapter{},
			}, watermill.NopLogger{}))
		},
	}
}

func openChannelEnds(*testing.T, string) ends {
	channel := gochannel.NewGoChannel(gochannel.Config{
		OutputChannelBuffer: 1000, Persistent: true,
	}, watermill.NopLogger{})
	return ends{
		publisher: func(t *testing.T) core.Publisher {
			t.Helper()
			p := must[*watermillbridge.Publisher](t)(watermillbridge.NewPublisher(channel, watermillbridge.Config{}))
			topics.CloseAtEnd(t, p)
			return p
		},
		subscriber: func(*testing.T, string) message.Subscriber { return channel },
	}
}
