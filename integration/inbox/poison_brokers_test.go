package inbox_test

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/ormoutbox/ormoutbox/core"
	coreinbox "github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/topics"
	"github.com/ormoutbox/ormoutbox/watermillbridge/amqpbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/franzbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/kafkabridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/natsbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/redisbridge"
)

// queueBroker is a broker with a topic and a poison queue.
type queueBroker struct {
	topic, poison string
	to            coreinbox.Sender
	park          message.Publisher // writes as the option Poison of module inbox does
	// open opens a topic as a queue. With Kafka the group remembers what was acknowledged.
	open func(topic, group string) (closingQueue, error)
	// from and group are those of outbox inbox release.
	from, group string
	// count, if not nil, counts the parked messages and looks at none: a quorum queue counts looks.
	count func() int
}

type closingQueue interface {
	coreinbox.Queue
	Close() error
}

// closed is a queue whose Close does nothing: its client lives on.
type closed struct{ *redisbridge.PoisonQueue }

func (closed) Close() error { return nil }

var queueBrokers = map[string]func(t *testing.T) queueBroker{
	"kafka": func(t *testing.T) queueBroker {
		prefix, poison := core.NewEventID(), topics.Kafka(t, "", 3, nil)
		return queueBroker{
			topic: topics.Kafka(t, "", 3, nil), poison: poison,
			from:  "kafka://" + topics.KafkaAddress(t) + "/" + poison,
			group: prefix + "release",
			to:    topics.FranzPublisher(t, franzbridge.Config{}),
			park:  topics.KafkaPublisher(t, kafkabridge.Config{}).MessagePublisher(0),
			open: func(topic, group string) (closingQueue, error) {
				return franzbridge.OpenPoisonQueue(t.Context(), franzbridge.Config{
					Brokers: []string{topics.KafkaAddress(t)},
				}, topic, prefix+group)
			},
		}
	},
	"rabbitmq":        func(t *testing.T) queueBroker { return rabbitQueues(t, nil) },
	"rabbitmq quorum": func(t *testing.T) queueBroker { return rabbitQueues(t, quorum) },
	"nats": func(t *testing.T) queueBroker {
		cfg := natsbridge.Config{URL: topics.NATSURL(t)}
		p, poison := topics.NATSPublisher(t, cfg), topics.NATS(t, nil)
		return queueBroker{
			from:  cfg.URL + "/" + poison,
			topic: topics.NATS(t, nil), poison: poison, to: p, park: p.MessagePublisher(0),
			open: func(topic, _ string) (closingQueue, error) {
				return natsbridge.OpenPoisonQueue(t.Context(), cfg, topic)
			},
		}
	},
	"redis": func(t *testing.T) queueBroker {
		p := topics.RedisPublisher(t, topics.RedisURL(t), redisbridge.Config{AllowUnsafeServer: true})
		client, poison := topics.RedisAt(t, topics.RedisURL(t)), topics.Redis(t)
		return queueBroker{
			from:  topics.RedisURL(t) + "/" + poison,
			topic: topics.Redis(t), poison: poison, to: p, park: p.MessagePublisher(0),
			open: func(topic, _ string) (closingQueue, error) {
				q, err := redisbridge.OpenPoisonQueue(t.Context(), client, topic)
				return closed{q}, err
			},
		}
	},
}

// quorum are the arguments of a quorum queue.
var quorum = amqp091.Table{"x-queue-type": "quorum"}

func rabbitQueues(t *testing.T, arguments amqp091.Table) queueBroker {
	cfg := amqpbridge.Config{AMQP: amqpbridge.QueueConfig(topics.RabbitURI(t)), DeclareQueues: true}
	cfg.AMQP.Queue.Arguments = arguments
	p, poison := topics.RabbitPublisher(t, cfg), topics.Rabbit(t)
	return queueBroker{
		from:  topics.RabbitURI(t) + poison + "?topology=queue",
		topic: topics.Rabbit(t), poison: poison, to: p, park: p.MessagePublisher(0),
		open: func(topic, _ string) (closingQueue, error) {
			return amqpbridge.OpenPoisonQueue(t.Context(), cfg, topic)
		},
		count: func() int { return rabbitMessages(t, poison) },
	}
}

// rabbitMessages returns how many messages a queue has. It looks at none of them.
func rabbitMessages(t *testing.T, queue string) int {
	t.Helper()
	conn, err := amqp091.Dial(topics.RabbitURI(t))
	fixture.NoError(t, err)
	defer conn.Close()
	ch, err := conn.Channel()
	fixture.NoError(t, err)
	q, err := ch.QueueDeclarePassive(queue, false, false, false, false, nil)
	if err != nil { // the first message declares it
		return 0
	}
	return q.Messages
}
