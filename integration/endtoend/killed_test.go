package endtoend_test

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// The broker is killed with SIGKILL while events are on their way to it. It stays away while the
// service goes on, and then comes back. No event is lost or invented, the first copies of each key
// stay in order, and the outage spends no attempts. Kafka and RabbitMQ, which start slowly, are
// left out with -short.
func TestBrokerKilled(t *testing.T) {
	t.Parallel()
	brokers := map[string]func(address string) broker{
		"kafka":    func(address string) broker { return kafkaBroker{address: address} },
		"rabbitmq": func(address string) broker { return restartedRabbit{rabbitBroker{address}} },
		"nats":     func(address string) broker { return natsBroker{address} },
		"redis":    func(address string) broker { return redisBroker{address} },
	}
	if testing.Short() {
		delete(brokers, "kafka")
		delete(brokers, "rabbitmq")
	}
	for name, connect := range brokers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := fixture.StartPrivate(t, name)
			var cells []*e2eCell
			for _, open := range e2eDatabases {
				cells = append(cells, newE2ECell(t, open(t), connect(server.Address)))
			}
			names := map[*e2eCell]string{}
			if name == "kafka" { // once more with franzbridge, which does not wait for each answer
				async := newE2ECell(t, testdb.Postgres(t), kafkaBroker{address: server.Address, franz: true})
				cells = append(cells, async)
				names[async] = "franzbridge"
			}
			t.Cleanup(func() { server.Resume(t) })
			stop := make(chan struct{})
			var wg sync.WaitGroup
			for _, c := range cells {
				wg.Go(func() { c.produce(4, 50, stop) })
			}
			ended := sync.OnceFunc(func() { close(stop); wg.Wait() })
			defer ended()

			all := func(ok func(*e2eCell) bool) func() bool {
				return func() bool { return !slices.ContainsFunc(cells, func(c *e2eCell) bool { return !ok(c) }) }
			}
			fixture.Await(t, "events arrive", all(func(c *e2eCell) bool { return c.ledger.acknowledged() >= 150 }))
			server.Pause(t) // so that some events are certainly on their way
			fixture.Await(t, "events are on their way", all(func(c *e2eCell) bool { return c.ledger.flying() >= 4 }))
			server.Kill(t)
			for _, c := range cells { // the producers go on
				before := c.count("SELECT COUNT(*) FROM outbox_event")
				fixture.Await(t, "events are written", func() bool {
					return c.count("SELECT COUNT(*) FROM outbox_event") > before+30
				})
			}
			// The producers end before all publishes have failed: a client that tries again by
			// itself returns an error only after its timeout.
			ended()
			fixture.Await(t, "publishes fail", all(func(c *e2eCell) bool { return c.ledger.failures() > 0 }))
			server.Up(t)
			for _, c := range cells {
				t.Run(cmp.Or(names[c], c.services[0].db.Name()), func(t *testing.T) {
					c.t = t
					c.produce(2, 10, nil)
					c.finish(3 * time.Minute)
					c.compare(1)
				})
			}
		})
	}
}

// restartedRabbit is RabbitMQ with a consumer that connects again by itself. Watermill's does so
// too, but the race detector objects to how it replaces its connection.
type restartedRabbit struct{ rabbitBroker }

func (r restartedRabbit) consume(t *testing.T, topic string) *consumer {
	t.Helper()
	r.channel(t, func(ch *amqp091.Channel) error {
		_, err := ch.QueueDeclare(topic, true, false, false, false, nil)
		return err
	})
	return startConsumer(t, func(ctx context.Context) (<-chan *message.Message, error) {
		out := make(chan *message.Message)
		go func() {
			defer close(out)
			for ctx.Err() == nil {
				r.session(ctx, topic, out)
				select {
				case <-time.After(100 * time.Millisecond): // a pause before the next connection
				case <-ctx.Done():
				}
			}
		}()
		return out, nil
	})
}

// session consumes over one connection, until it breaks.
func (r restartedRabbit) session(ctx context.Context, topic string, out chan<- *message.Message) {
	conn, err := amqp091.Dial(r.uri)
	if err != nil {
		return
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil || ch.Qos(50, 0, false) != nil {
		return
	}
	deliveries, err := ch.ConsumeWithContext(ctx, topic, "", false, false, false, false, nil)
	if err != nil {
		return
	}
	for d := range deliveries {
		msg, err := amqp.DefaultMarshaler{}.Unmarshal(d)
		if err != nil {
			msg = message.NewMessage("", nil) // the consumer will report a foreign message
		}
		select {
		case out <- msg:
		case <-ctx.Done():
			return
		}
		if d.Ack(false) != nil {
			return
		}
	}
}
