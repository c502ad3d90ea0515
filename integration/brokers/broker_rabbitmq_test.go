package brokers_test

import (
	"errors"
	"maps"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest/suite"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/topics"
	"github.com/ormoutbox/ormoutbox/watermillbridge/amqpbridge"
)

// rabbitBroker is RabbitMQ: a topic is a durable queue.
type rabbitBroker struct {
	uri    string
	quorum bool

	mu    sync.Mutex
	taken map[string][]heldMessage // by topic; reading a queue takes its messages away
}

// channel calls fn with a channel of a connection of its own.
func (r *rabbitBroker) channel(fn func(*amqp091.Channel) error) error {
	conn, err := amqp091.Dial(r.uri)
	if err != nil {
		return err
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	return fn(ch)
}

func (r *rabbitBroker) topic(t *testing.T) string { t.Helper(); return r.topicWith(t, amqp091.Table{}) }

func (r *rabbitBroker) topicWith(t *testing.T, arguments amqp091.Table) string {
	t.Helper()
	name := "it-" + core.NewEventID()
	fixture.NoError(t, r.channel(func(ch *amqp091.Channel) error { return r.declare(ch, name, arguments) }))
	t.Cleanup(func() { // the server of a single test may be down by now
		_ = r.channel(func(ch *amqp091.Channel) error {
			_, err := ch.QueueDelete(name, false, false, false)
			return err
		})
	})
	return name
}

// queueType names the type, because the server may have another default.
func queueType(quorum bool) amqp091.Table {
	if quorum {
		return amqp091.Table{"x-queue-type": "quorum"}
	}
	return amqp091.Table{"x-queue-type": "classic"}
}

func (r *rabbitBroker) declare(ch *amqp091.Channel, name string, arguments amqp091.Table) error {
	maps.Copy(arguments, queueType(r.quorum))
	_, err := ch.QueueDeclare(name, true, false, false, false, arguments)
	return err
}

func (r *rabbitBroker) again(t *testing.T, topic string) {
	t.Helper()
	fixture.NoError(t, r.channel(func(ch *amqp091.Channel) error {
		if _, err := ch.QueueDelete(topic, false, false, false); err != nil {
			return err
		}
		return r.declare(ch, topic, amqp091.Table{})
	}))
}

func (r *rabbitBroker) publisher(t *testing.T, timeout time.Duration) publisher {
	t.Helper()
	return topics.RabbitPublisher(t, amqpbridge.Config{AMQP: amqpbridge.QueueConfig(r.uri), ConnectTimeout: timeout})
}

func (r *rabbitBroker) through(t *testing.T, timeout time.Duration) (publisher, suite.Link) {
	t.Helper()
	uri, proxy := proxied(t, r.uri)
	return (&rabbitBroker{uri: uri}).publisher(t, timeout), proxy
}

func (r *rabbitBroker) behind(t *testing.T, other string) publisher {
	t.Helper()
	return (&rabbitBroker{uri: severalServers(t, r.uri, other)}).publisher(t, 0)
}

// severalServers adds the address of another server to a URL of RabbitMQ, as the first one.
func severalServers(t *testing.T, uri, other string) string {
	t.Helper()
	u, err := url.Parse(uri)
	fixture.NoError(t, err)
	u.Host = other + "," + u.Host
	return u.String()
}

// refusal is a full queue. Its cure purges the queue and does not delete it: while RabbitMQ deletes
// a queue, it confirms the messages that are on their way to it.
func (r *rabbitBroker) refusal(t *testing.T) suite.Refusal {
	t.Helper()
	topic := r.topicWith(t, amqp091.Table{"x-max-length": 10, "x-overflow": "reject-publish"})
	p := r.publisher(t, 0)
	fixture.Await(t, "the queue is full", func() bool { // a quorum queue takes a few more
		return errors.Is(publishWithin(t, p, brokerDelivery(t, topic, ""), time.Minute), amqpbridge.ErrNack)
	})
	return suite.Refusal{Publisher: r.publisher(t, 0), Topic: topic, Cure: func() {
		if err := r.channel(func(ch *amqp091.Channel) error {
			_, err := ch.QueuePurge(topic, false)
			return err
		}); err != nil {
			t.Error(err)
		}
	}}
}

func (r *rabbitBroker) held(t *testing.T, topic string) []heldMessage {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.taken == nil {
		r.taken = map[string][]heldMessage{}
	}
	fixture.NoError(t, r.channel(func(ch *amqp091.Channel) error {
		for {
			d, ok, err := ch.Get(topic, true)
			if err != nil || !ok {
				return err
			}
			msg, err := amqpbridge.Marshaler{}.Unmarshal(d)
			if err != nil {
				return err
			}
			r.taken[topic] = append(r.taken[topic], heldMessage{Message: msg})
		}
	}))
	return r.taken[topic]
}
