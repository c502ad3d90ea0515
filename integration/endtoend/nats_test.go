package endtoend_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	wmnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/topics"
	"github.com/ormoutbox/ormoutbox/watermillbridge/natsbridge"
)

// natsBroker is JetStream: a topic is a stream with one subject of that name.
type natsBroker struct{ url string }

func (n natsBroker) publisher(t *testing.T) core.ReceiptPublisher {
	t.Helper()
	return topics.NATSPublisher(t, natsbridge.Config{URL: n.url})
}

func (n natsBroker) consume(t *testing.T, topic string) *consumer {
	t.Helper()
	name := topics.NATSStream(t, n.url, topic, nil)
	js := topics.JetStream(t, n.url)
	return startConsumer(t, func(ctx context.Context) (<-chan *message.Message, error) {
		c, err := js.OrderedConsumer(ctx, name, jetstream.OrderedConsumerConfig{})
		if err != nil {
			return nil, err
		}
		out := make(chan *message.Message)
		consuming, err := c.Consume(func(m jetstream.Msg) {
			select {
			case out <- n.read(name, m):
			case <-ctx.Done():
			}
		})
		if err != nil {
			return nil, err
		}
		go func() {
			<-ctx.Done()
			consuming.Stop()
			<-consuming.Closed()
			close(out)
		}()
		return out, nil
	})
}

// read makes the message that Watermill's subscriber would make.
func (n natsBroker) read(stream string, m jetstream.Msg) *message.Message {
	raw := &nats.Msg{Subject: m.Subject(), Header: m.Headers(), Data: m.Data()}
	msg, err := (&wmnats.NATSMarshaler{}).Unmarshal(raw)
	if err != nil {
		return message.NewMessage("", nil) // the consumer will report a foreign message
	}
	md, err := m.Metadata()
	if err != nil {
		return message.NewMessage("", nil)
	}
	return placed(msg, fmt.Sprintf("%s@%d", stream, md.Sequence.Stream))
}

func (n natsBroker) left(t *testing.T, topic string, c *consumer) (int, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	js := topics.JetStream(t, n.url)
	name, err := js.StreamNameBySubject(ctx, topic)
	if err != nil {
		return 0, err
	}
	stream, err := js.Stream(ctx, name)
	if err != nil {
		return 0, err
	}
	return int(stream.CachedInfo().State.Msgs) - c.places(), nil
}
