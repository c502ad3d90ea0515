package brokers_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	wmnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/topics"
)

// natsSubscriber is a message.Subscriber over a pull consumer. The subscriber of watermill-nats
// v2.1.3 panics if it is closed while a message arrives (docs/nats.md).
type natsSubscriber struct {
	js      jetstream.JetStream
	group   string
	closing context.Context
	stop    context.CancelFunc
	running sync.WaitGroup
}

func newNATSSubscriber(t *testing.T, url, group string) *natsSubscriber {
	t.Helper()
	s := &natsSubscriber{js: topics.JetStream(t, url), group: group}
	s.closing, s.stop = context.WithCancel(context.Background())
	t.Cleanup(func() { fixture.NoError(t, s.Close()) })
	return s
}

// Close implements message.Subscriber.
func (s *natsSubscriber) Close() error {
	s.stop()
	s.running.Wait()
	return nil
}

// SubscribeInitialize implements message.SubscribeInitializer: it makes the stream of a topic.
func (s *natsSubscriber) SubscribeInitialize(topic string) error {
	_, err := s.js.CreateOrUpdateStream(s.closing, jetstream.StreamConfig{Name: topic, Subjects: []string{topic}})
	return err
}

// Subscribe implements message.Subscriber.
func (s *natsSubscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	ctx, cancel := context.WithCancel(ctx)
	context.AfterFunc(s.closing, cancel)
	consumer, err := s.js.CreateOrUpdateConsumer(ctx, topic, jetstream.ConsumerConfig{
		Durable: s.group, FilterSubject: topic, AckPolicy: jetstream.AckExplicitPolicy, AckWait: 5 * time.Second,
		MaxAckPending: 1, // keeps the order
	})
	if err != nil {
		cancel()
		return nil, err
	}
	messages, err := consumer.Messages(jetstream.PullMaxMessages(1))
	if err != nil {
		cancel()
		return nil, err
	}
	context.AfterFunc(ctx, messages.Drain)
	output := make(chan *message.Message)
	s.running.Go(func() {
		defer cancel()
		defer close(output)
		for {
			m, err := messages.Next()
			if errors.Is(err, jetstream.ErrMsgIteratorClosed) {
				return
			} else if err == nil {
				s.handle(ctx, m, output)
			}
		}
	})
	return output, nil
}

// handle gives the message to the reader of output, who acknowledges it or refuses it. A message
// that comes while the subscriber ends is refused, so that another subscriber gets it at once.
func (s *natsSubscriber) handle(ctx context.Context, m jetstream.Msg, output chan<- *message.Message) {
	msg, err := (&wmnats.NATSMarshaler{}).Unmarshal(&nats.Msg{Subject: m.Subject(), Header: m.Headers(), Data: m.Data()})
	if err != nil {
		_ = m.Term()
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	msg.SetContext(ctx)
	select {
	case output <- msg:
	case <-ctx.Done():
		_ = m.Nak()
		return
	}
	select {
	case <-msg.Acked():
		_ = m.DoubleAck(context.WithoutCancel(ctx)) // a message whose acknowledgement is lost comes again
	case <-msg.Nacked():
		_ = m.Nak()
	case <-ctx.Done():
		_ = m.Nak()
	}
}
