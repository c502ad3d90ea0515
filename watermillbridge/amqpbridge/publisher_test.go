package amqpbridge_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/watermillbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/amqpbridge"
)

func delivery(topic string) core.Delivery {
	e := core.Event{ID: core.NewEventID(), Type: "order.placed", Topic: topic, Payload: []byte(`{"total":7}`)}
	id, err := core.NewRowID(e.ID, topic)
	if err != nil {
		panic(err)
	}
	return core.Delivery{Event: e, RowID: id, Attempt: 1}
}

func newPublisher(t *testing.T, cfg amqpbridge.Config) *watermillbridge.Publisher {
	t.Helper()
	p, err := amqpbridge.NewPublisher(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := p.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return p
}

// listen returns the address of a listener that passes its connections to serve.
func listen(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go serve(conn)
		}
	}()
	return l.Addr().String()
}

func TestABrokerThatIsAwayIsUnavailable(t *testing.T) {
	t.Parallel()
	p := newPublisher(t, amqpbridge.Config{AMQP: amqpbridge.QueueConfig(nowhere)})
	for range 2 {
		err := p.Publish(t.Context(), delivery("orders"))
		if class, _ := core.ClassOf(err); !errors.Is(err, syscall.ECONNREFUSED) || class != core.ClassUnavailable {
			t.Errorf("err = %v, class %v; want ECONNREFUSED, unavailable", err, class)
		}
	}
}

func TestABrokerThatSaysNothing(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	defer close(release)
	addr := listen(t, func(c net.Conn) {
		<-release
		_ = c.Close()
	})
	config := amqpbridge.Config{
		AMQP:           amqpbridge.QueueConfig("amqp://guest:guest@" + addr),
		ConnectTimeout: 200 * time.Millisecond,
	}
	err := newPublisher(t, config).Publish(t.Context(), delivery("orders")) // without ConnectTimeout, it hangs
	if class, _ := core.ClassOf(err); err == nil || class != core.ClassUnavailable {
		t.Errorf("err = %v, class %v; want unavailable after ConnectTimeout", err, class)
	}

	config.ConnectTimeout = time.Minute // so that the context ends first, also on a machine that stands still
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := newPublisher(t, config).Publish(ctx, delivery("orders")); !errors.Is(err, watermillbridge.ErrNoAnswer) &&
		!errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("err = %v, want the end of the context", err)
	}
}

func TestAPasswordThatIsWrongIsNotTold(t *testing.T) {
	t.Parallel()
	addr := listen(t, func(c net.Conn) { _ = c.Close() })
	p := newPublisher(t, amqpbridge.Config{AMQP: amqpbridge.QueueConfig("amqp://guest:s3cret@" + addr)})
	err := p.Publish(t.Context(), delivery("orders"))
	if class, _ := core.ClassOf(err); err == nil || class != core.ClassUnavailable ||
		strings.Contains(err.Error(), "s3cret") {
		t.Errorf("err = %v, class %v; want unavailable without the password", err, class)
	}
}

// marshalerFunc is a Marshaler made of a function.
type marshalerFunc func(*message.Message) (amqp091.Publishing, error)

func (f marshalerFunc) Marshal(msg *message.Message) (amqp091.Publishing, error) { return f(msg) }
func (f marshalerFunc) Unmarshal(d amqp091.Delivery) (*message.Message, error) {
	return nil, errors.ErrUnsupported
}

func TestWhatCannotBeSentIsPermanent(t *testing.T) {
	t.Parallel()
	refused := errors.New("refused")
	for name, change := range map[string]func(*amqp.Config){
		"marshaler": func(c *amqp.Config) {
			c.Marshaler = marshalerFunc(func(*message.Message) (amqp091.Publishing, error) {
				return amqp091.Publishing{}, refused
			})
		},
		"header": func(c *amqp.Config) {
			c.Marshaler = marshalerFunc(func(*message.Message) (amqp091.Publishing, error) {
				return amqp091.Publishing{
					DeliveryMode: amqp091.Persistent,
					Headers:      amqp091.Table{"bad": make(chan int)},
				}, nil
			})
		},
		"exchange": func(c *amqp.Config) {
			c.Exchange.GenerateName = func(topic string) string { return strings.Repeat(topic, 60) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := amqpbridge.PubSubConfig(nowhere, nil)
			change(&c)
			err := newPublisher(t, amqpbridge.Config{AMQP: c}).Publish(t.Context(), delivery("orders"))
			if class, _ := core.ClassOf(err); class != core.ClassPermanent {
				t.Errorf("err = %v, class %v; want permanent", err, class)
			}
		})
	}
}

func TestPublishAfterClose(t *testing.T) {
	t.Parallel()
	p := newPublisher(t, amqpbridge.Config{AMQP: amqpbridge.QueueConfig(nowhere)})
	if err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := p.Publish(t.Context(), delivery("orders")); !errors.Is(err, watermillbridge.ErrClosed) {
		t.Errorf("err = %v, want ErrClosed", err)
	}
}
