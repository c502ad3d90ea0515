package brokers_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	amqpv2 "github.com/ThreeDotsLabs/watermill-amqp/v2/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest/suite"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/topics"
	"github.com/ormoutbox/ormoutbox/watermillbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/amqpbridge"
)

// rabbitMessages subscribes with Watermill.
func rabbitMessages(t testing.TB, cfg amqp.Config, topic string) <-chan *message.Message {
	t.Helper()
	sub, err := amqp.NewSubscriber(cfg, watermill.NopLogger{})
	return subscribed(t, sub, err, topic)
}

func TestAMQPPubSub(t *testing.T) {
	t.Parallel()
	topic := topics.Rabbit(t)
	cfg := amqpbridge.PubSubConfig(topics.RabbitURI(t), amqp.GenerateQueueNameTopicName)
	p := topics.RabbitPublisher(t, amqpbridge.Config{AMQP: cfg, DeclareQueues: true})
	d := brokerDelivery(t, topic, "order/o-1")
	fixture.NoError(t, publishWithin(t, p, d, time.Minute))
	requireDelivery(t, receive(t, rabbitMessages(t, cfg, topic)), d) // it waited in the queue
}

func TestAMQPTopicExchange(t *testing.T) {
	t.Parallel()
	topic := topics.Rabbit(t)
	cfg := amqpbridge.TopicConfig(topics.RabbitURI(t), topic, topic)
	p := topics.RabbitPublisher(t, amqpbridge.Config{AMQP: cfg, DeclareQueues: true})
	d := brokerDelivery(t, "order.placed", "")
	fixture.NoError(t, publishWithin(t, p, d, time.Minute))
	requireDelivery(t, receive(t, rabbitMessages(t, cfg, "order.placed")), d)
}

// The broker cancels a consumer when its queue is deleted. The consumer gets no message from that.
// It declares the queue again and gets the next message.
func TestAMQPCancelledConsumer(t *testing.T) {
	t.Parallel()
	for name, arguments := range map[string]amqp091.Table{"classic": queueType(false), "quorum": queueType(true)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			topic, ch := topics.Rabbit(t), topics.RabbitChannel(t)
			cfg := amqpbridge.QueueConfig(topics.RabbitURI(t))
			cfg.Queue.Arguments = arguments
			p := topics.RabbitPublisher(t, amqpbridge.Config{AMQP: cfg})
			messages := rabbitMessages(t, cfg, topic)
			for range 3 {
				d := brokerDelivery(t, topic, "k")
				publishUntil(t, p, d, "") // until the consumer has declared the queue
				msg := receive(t, messages)
				delete(msg.Metadata, "x-delivery-count") // added by a quorum queue for the consumer
				requireDelivery(t, msg, d)
				if _, err := ch.QueueDelete(topic, false, false, false); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// A publisher and a consumer find the server that is up, the publisher also after its connection
// broke. The consumer's connection stays, because Watermill's subscriber has a data race when it
// connects again.
func TestAMQPSeveralServers(t *testing.T) {
	t.Parallel()
	topic := topics.Rabbit(t)
	up, proxy := proxied(t, topics.RabbitURI(t))
	cfg := amqpbridge.QueueConfig(severalServers(t, up, nobodyThere))
	p := topics.RabbitPublisher(t, amqpbridge.Config{AMQP: cfg})
	messages := rabbitMessages(t, amqpbridge.QueueConfig(severalServers(t, topics.RabbitURI(t), nobodyThere)), topic)
	for range 4 { // each of them begins with another server
		d := brokerDelivery(t, topic, "k")
		publishUntil(t, p, d, "")
		msg := receive(t, messages)
		requireDelivery(t, msg, d)
		proxy.Cut()
	}
}

func TestAMQPProperties(t *testing.T) {
	t.Parallel()
	topic := topics.Rabbit(t)
	p := topics.RabbitPublisher(t, amqpbridge.Config{
		AMQP:          amqpbridge.QueueConfig(topics.RabbitURI(t)),
		DeclareQueues: true,
	})
	d := brokerDelivery(t, topic, "")
	fixture.NoError(t, publishWithin(t, p, d, time.Minute))
	raw, ok, err := topics.RabbitChannel(t).Get(topic, true)
	fixture.Must(t, err == nil && ok, "no message: %v", err)
	if raw.DeliveryMode != amqp091.Persistent || raw.MessageId != d.RowID.String() ||
		raw.ContentType != "application/json" {
		t.Errorf("delivery mode %d, message id %q, content type %q", raw.DeliveryMode, raw.MessageId, raw.ContentType)
	}
	for k, v := range raw.Headers {
		if _, text := v.(string); !text {
			t.Errorf("header %s is a %T: Watermill's subscriber refuses it without end", k, v)
		}
	}
}

func TestAMQPUnroutable(t *testing.T) {
	t.Parallel()
	uri := topics.RabbitURI(t)
	for name, tc := range map[string]struct {
		cfg     amqpbridge.Config
		refused bool
	}{
		"no queue":   {amqpbridge.Config{AMQP: amqpbridge.QueueConfig(uri)}, true},
		"no binding": {amqpbridge.Config{AMQP: amqpbridge.PubSubConfig(uri, nil)}, true},
		"no binding, allowed": {
			amqpbridge.Config{AMQP: amqpbridge.PubSubConfig(uri, nil), AllowUnroutable: true},
			false,
		},
		"mandatory turned off": {amqpbridge.Config{AMQP: amqp.NewDurablePubSubConfig(uri, nil)}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := topics.RabbitPublisher(t, tc.cfg)
			topic := topics.Rabbit(t)
			for range 3 {
				err := publishWithin(t, p, brokerDelivery(t, topic, ""), time.Minute)
				if !tc.refused {
					if err != nil {
						t.Error(err)
					}
					continue
				}
				requireClass(t, err, core.ClassUnroutable)
				fixture.Check(t, errors.Is(err, amqpbridge.ErrUnroutable), "err = %v, want ErrUnroutable", err)
			}
		})
	}
}

// A message that was returned must not make the next one on the same channel fail.
func TestAMQPReturnedMessagesAreTheirOwn(t *testing.T) {
	t.Parallel()
	routable, unroutable := topics.Rabbit(t), topics.Rabbit(t)
	if _, err := topics.RabbitChannel(t).QueueDeclare(routable, true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	p := topics.RabbitPublisher(t, amqpbridge.Config{AMQP: amqpbridge.QueueConfig(topics.RabbitURI(t)), Channels: 3})
	var wg sync.WaitGroup
	for worker := range 6 {
		wg.Go(func() {
			for n := range 40 {
				bad := (worker+n)%2 == 0
				topic := routable
				if bad {
					topic = unroutable
				}
				if err := publishWithin(t, p, brokerDelivery(t, topic, ""), time.Minute); errors.Is(err,
					amqpbridge.ErrUnroutable) != bad || !bad && err != nil {
					t.Errorf("unroutable %v: err = %v", bad, err)
				}
			}
		})
	}
	wg.Wait()
	q, err := topics.RabbitChannel(t).QueueDeclarePassive(routable, true, false, false, false, nil)
	fixture.Check(t, err == nil && q.Messages == 120, "the queue has %d messages, err %v; want 120", q.Messages, err)
}

func TestAMQPNack(t *testing.T) {
	t.Parallel()
	topic := topics.Rabbit(t)
	cfg := amqpbridge.QueueConfig(topics.RabbitURI(t))
	cfg.Queue.Arguments = amqp091.Table{"x-max-length": 1, "x-overflow": "reject-publish"}
	p := topics.RabbitPublisher(t, amqpbridge.Config{AMQP: cfg, DeclareQueues: true})
	fixture.NoError(t, publishWithin(t, p, brokerDelivery(t, topic, ""), time.Minute))
	err := publishWithin(t, p, brokerDelivery(t, topic, ""), time.Minute)
	requireClass(t, err, core.ClassUnavailable)
	fixture.Check(t, errors.Is(err, amqpbridge.ErrNack), "err = %v, want ErrNack", err)
	if _, _, err := topics.RabbitChannel(t).Get(topic, true); err != nil {
		t.Fatal(err)
	}
	publishUntil(t, p, brokerDelivery(t, topic, ""), "") // there is room, once the pause is over
}

func TestAMQPTopologyTrouble(t *testing.T) {
	t.Parallel()
	deleted, other, healthy := topics.Rabbit(t), topics.Rabbit(t), topics.Rabbit(t)
	ch := topics.RabbitChannel(t)
	fixture.NoError(t, ch.ExchangeDeclare(other, "direct", true, false, false, false, nil))
	p := topics.RabbitPublisher(t, amqpbridge.Config{
		AMQP: amqpbridge.PubSubConfig(topics.RabbitURI(t), amqp.GenerateQueueNameTopicName), DeclareQueues: true,
		Channels: 1,
	})
	fixture.NoError(t, publishWithin(t, p, brokerDelivery(t, deleted, ""), time.Minute))

	// An exchange of another kind has the topic's name.
	requireClass(t, publishWithin(t, p, brokerDelivery(t, other, ""), time.Minute), core.ClassUnavailable)
	if err := publishWithin(t, p, brokerDelivery(t, healthy, ""), time.Minute); err != nil {
		t.Errorf("another topic: %v", err)
	}

	// After the exchange was deleted, one publish fails, and then the exchange is declared again.
	fixture.NoError(t, ch.ExchangeDelete(deleted, false, false))
	requireClass(t, publishWithin(t, p, brokerDelivery(t, deleted, ""), time.Minute), core.ClassUnavailable)
	if err := publishWithin(t, p, brokerDelivery(t, deleted, ""), time.Minute); err != nil {
		t.Errorf("after the exchange was deleted: %v", err)
	}

	// The same happens after the queue or its binding was deleted.
	fixture.NoError(t, ch.QueueUnbind(deleted, "", deleted, nil))
	for range 2 {
		requireClass(t, publishWithin(t, p, brokerDelivery(t, deleted, ""), time.Minute), core.ClassUnavailable)
		if err := publishWithin(t, p, brokerDelivery(t, deleted, ""), time.Minute); err != nil {
			t.Errorf("after the queue was unbound or deleted: %v", err)
		}
		if _, err := ch.QueueDelete(deleted, false, false, false); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAMQPWrongPassword(t *testing.T) {
	t.Parallel()
	u, err := url.Parse(topics.RabbitURI(t))
	fixture.NoError(t, err)
	u.User = url.UserPassword("guest", "wrong")
	p := topics.RabbitPublisher(t, amqpbridge.Config{AMQP: amqpbridge.QueueConfig(u.String())})
	requireClass(t, publishWithin(t, p, brokerDelivery(t, "orders", ""), time.Minute), core.ClassUnavailable)
}

// rabbitThroughProxy returns a publisher behind a proxy, the proxy, and the name of a queue that
// exists.
func rabbitThroughProxy(t *testing.T, cfg amqpbridge.Config) (*watermillbridge.Publisher, *suite.Proxy, string) {
	t.Helper()
	uri, proxy := proxied(t, topics.RabbitURI(t))
	cfg.AMQP, cfg.DeclareQueues = amqpbridge.QueueConfig(uri), true
	return topics.RabbitPublisher(t, cfg), proxy, topics.Rabbit(t)
}

func TestAMQPHangs(t *testing.T) {
	t.Parallel()
	p, proxy, topic := rabbitThroughProxy(t, amqpbridge.Config{Channels: 2})
	fixture.NoError(t, publishWithin(t, p, brokerDelivery(t, topic, ""), time.Minute))
	proxy.Freeze()
	const timeout = 200 * time.Millisecond
	began := time.Now()
	for range 4 { // twice as many as there are channels
		err := publishWithin(t, p, brokerDelivery(t, topic, ""), timeout)
		fixture.Check(t, errors.Is(err, context.DeadlineExceeded), "err = %v, want DeadlineExceeded", err)
	}
	if took := time.Since(began); took > 30*time.Second { // a hang
		t.Errorf("four publishes took %s, want %s", took, 4*timeout)
	}
	proxy.Thaw()
	fixture.Await(t, "the calls return", func() bool { return p.Stuck() == 0 })
	if err := publishWithin(t, p, brokerDelivery(t, topic, ""), time.Minute); err != nil {
		t.Errorf("after the hang: %v", err)
	}
}

// amqpFrame returns a method on channel 0 whose only argument is one short string.
func amqpFrame(class, method byte, text string) []byte {
	payload := append([]byte{0, class, 0, method}, append([]byte{byte(len(text))}, text...)...)
	if text == "" {
		payload = payload[:4]
	}
	return append(append([]byte{1, 0, 0, 0, 0, 0, byte(len(payload))}, payload...), 0xce)
}

// A broker that is short of memory blocks its publishers and reads no more from them.
func TestAMQPBlocked(t *testing.T) {
	t.Parallel()
	p, proxy, topic := rabbitThroughProxy(t, amqpbridge.Config{})
	fixture.NoError(t, publishWithin(t, p, brokerDelivery(t, topic, ""), time.Minute))
	proxy.Tell(t, amqpFrame(10, 60, "low on memory")) // connection.blocked
	fixture.Await(t, "the publisher notices", func() bool {
		return errors.Is(publishWithin(t, p, brokerDelivery(t, topic, ""), time.Minute), amqpbridge.ErrBlocked)
	})
	proxy.Freeze() // the publisher must not even try to publish
	began := time.Now()
	err := publishWithin(t, p, brokerDelivery(t, topic, ""), time.Minute)
	requireClass(t, err, core.ClassUnavailable)
	if took := time.Since(began); took > 30*time.Second { // the deadline is a minute
		t.Errorf("took %s", took)
	}
	proxy.Thaw()
	proxy.Tell(t, amqpFrame(10, 61, "")) // connection.unblocked
	fixture.Await(t, "publishing goes on", func() bool {
		return publishWithin(t, p, brokerDelivery(t, topic, ""), time.Minute) == nil
	})
}

// A broker in an alarm tells a new connection of it after the first messages, which it does not
// answer. They say so.
func TestAMQPConnectsWhileBlocked(t *testing.T) {
	t.Parallel()
	p, proxy, topic := rabbitThroughProxy(t, amqpbridge.Config{})
	fixture.NoError(t, publishWithin(t, p, brokerDelivery(t, topic, ""), time.Minute)) // declares the queue
	proxy.Hold()
	failed := make(chan error, 10)
	for range cap(failed) {
		go func() { failed <- publishWithin(t, p, brokerDelivery(t, topic, ""), time.Minute) }()
	}
	<-time.After(100 * time.Millisecond) // most of them are sent; the others see the alarm before
	proxy.Tell(t, amqpFrame(10, 60, "low on memory"))
	for range cap(failed) {
		err := <-failed
		requireClass(t, err, core.ClassUnavailable)
		fixture.Check(t, errors.Is(err, amqpbridge.ErrBlocked), "err = %v, want ErrBlocked", err)
	}
	proxy.Release()
	proxy.Tell(t, amqpFrame(10, 61, ""))
	publishUntil(t, p, brokerDelivery(t, topic, ""), "")
}

// Watermill's own publishers, of both major versions, work through the plain bridge.
func TestAMQPWatermillPublishers(t *testing.T) {
	t.Parallel()
	v2 := amqpv2.NewDurableQueueConfig(topics.RabbitURI(t))
	v2.Publish.ConfirmDelivery = true
	v3 := amqp.NewDurableQueueConfig(topics.RabbitURI(t))
	v3.Publish.ConfirmDelivery = true
	for name, open := range map[string]func() (message.Publisher, error){
		"v2": func() (message.Publisher, error) { return amqpv2.NewPublisher(v2, watermill.NopLogger{}) },
		"v3": func() (message.Publisher, error) { return amqp.NewPublisher(v3, watermill.NopLogger{}) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pub, err := open()
			fixture.NoError(t, err)
			p, err := watermillbridge.NewPublisher(pub, watermillbridge.Config{})
			fixture.NoError(t, err)
			topics.CloseAtEnd(t, p)
			topic := topics.Rabbit(t)
			messages := rabbitMessages(t, v3, topic) // declares the queue
			d := brokerDelivery(t, topic, "k")
			fixture.NoError(t, publishWithin(t, p, d, time.Minute))
			requireDelivery(t, receive(t, messages), d)
		})
	}
}

// BenchmarkAMQPPublish publishes payloads of 500 bytes with as many workers as channels, through
// amqpbridge and, for comparison, through Watermill's own publisher.
func BenchmarkAMQPPublish(b *testing.B) {
	own := func(b *testing.B, channels int) core.Publisher {
		b.Helper()
		return topics.RabbitPublisher(b, amqpbridge.Config{
			AMQP:          amqpbridge.QueueConfig(topics.RabbitURI(b)),
			DeclareQueues: true, Channels: channels,
		})
	}
	watermills := func(b *testing.B, channels int) core.Publisher {
		b.Helper()
		cfg := amqpbridge.QueueConfig(topics.RabbitURI(b))
		cfg.Publish.ChannelPoolSize = channels
		pub, err := amqp.NewPublisher(cfg, watermill.NopLogger{})
		fixture.NoError(b, err)
		p, err := watermillbridge.NewPublisher(pub, watermillbridge.Config{AllowUnconfirmed: true})
		fixture.NoError(b, err)
		topics.CloseAtEnd(b, p)
		return p
	}
	for name, open := range map[string]func(*testing.B, int) core.Publisher{
		"amqpbridge": own,
		"watermill":  watermills,
	} {
		for _, channels := range []int{1, 16, 64} {
			b.Run(fmt.Sprintf("%s/channels=%d", name, channels), func(b *testing.B) {
				topic := topics.Rabbit(b)
				if _, err := topics.RabbitChannel(b).QueueDeclare(topic, true, false, false, false, nil); err != nil {
					b.Fatal(err)
				}
				p := open(b, channels)
				d := brokerDelivery(b, topic, "")
				d.Payload = make([]byte, 500)
				if channels > 1 {
					b.SetParallelism(channels / 2)
				}
				b.ReportAllocs()
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						if err := publishWithin(b, p, d, time.Minute); err != nil {
							b.Error(err)
						}
					}
				})
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
			})
		}
	}
}
