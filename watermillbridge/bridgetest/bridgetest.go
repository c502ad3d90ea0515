// Package bridgetest judges a Pub/Sub of Watermill: whether a relay may publish through it.
package bridgetest

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest/suite"
	"github.com/ormoutbox/ormoutbox/watermillbridge"
)

// Open returns a Pub/Sub for suite.PublisherHarness.Open. Its publishers are those of
// watermillbridge.NewPublisher, with cfg. sub must get every message of a topic to which it
// subscribes before the first message; the messages that it gets are those that the broker has.
// open makes the Watermill publisher, for each publisher anew.
//
// The result has the fields that every Pub/Sub can have. Set others as the broker has them: Adds,
// Through, Refusal.
func Open(t *testing.T, sub message.Subscriber, open func(t *testing.T) message.Publisher,
	cfg watermillbridge.Config,
) suite.Broker {
	t.Helper()
	p := &pubSub{sub: sub, got: map[string][]suite.Held{}}
	return suite.Broker{
		Topic: p.topic, Held: p.held,
		Publisher: func(t *testing.T, _ time.Duration) core.Publisher {
			t.Helper()
			return Publisher(t, open(t), cfg)
		},
	}
}

// Publisher returns a bridge's publisher that is closed when the test ends.
func Publisher(t *testing.T, pub message.Publisher, cfg watermillbridge.Config) *watermillbridge.Publisher {
	t.Helper()
	p, err := watermillbridge.NewPublisher(pub, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := p.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return p
}

// pubSub keeps what its subscriber gets.
type pubSub struct {
	sub message.Subscriber

	mu  sync.Mutex
	got map[string][]suite.Held // by topic
}

func (p *pubSub) topic(t *testing.T) string {
	t.Helper()
	topic := "outbox-" + core.NewEventID()
	p.subscribe(t, topic)
	return topic
}

func (p *pubSub) subscribe(t *testing.T, topic string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	if s, ok := p.sub.(message.SubscribeInitializer); ok {
		if err := s.SubscribeInitialize(topic); err != nil {
			cancel()
			t.Fatal(err)
		}
	}
	messages, err := p.sub.Subscribe(ctx, topic)
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for msg := range messages {
			d, err := watermillbridge.EventFromMessage(msg)
			if err != nil {
				t.Errorf("a message that no relay has sent: %v", err)
			}
			p.mu.Lock()
			p.got[topic] = append(p.got[topic], suite.Held{Delivery: d})
			p.mu.Unlock()
			msg.Ack()
		}
	}()
	t.Cleanup(func() { cancel(); <-ended })
}

func (p *pubSub) held(_ *testing.T, topic string) []suite.Held {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.got[topic])
}
