package inbox_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/ormoutbox/ormoutbox/core"
	coreinbox "github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/inbox"
)

// publisher keeps what is published in transactions.
type publisher struct {
	mu     sync.Mutex
	topics []string
	inTx   int
	err    error
}

func (p *publisher) Publish(topic string, msgs ...*message.Message) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range msgs {
		p.topics = append(p.topics, topic)
		if _, ok := core.TxFromContext(m.Context()); ok {
			p.inTx++
		}
	}
	return p.err
}

func (*publisher) Close() error { return nil }

func TestProducedMessagesGoToTheOutboxInTheTransaction(t *testing.T) {
	var outbox publisher
	w := newWorld(t)
	w.in.opts = append(w.in.opts, inbox.Publisher(&outbox))
	published := atomic.Int64{}
	pubsub := routed(t, func(r *message.Router, ps *gochannel.GoChannel) {
		r.AddMiddleware(w.in.Middleware)
		r.AddHandler("h", "orders", ps, "invoices", countingPublisher{&published},
			func(msg *message.Message) ([]*message.Message, error) {
				_, err := w.handler(msg)
				return []*message.Message{event(context.Background(), "i1"), event(context.Background(), "i2")}, err
			})
	})
	for range 2 {
		must(t, pubsub.Publish("orders", event(t.Context(), "e")))
	}
	if len(outbox.topics) != 2 || outbox.topics[0] != "invoices" || outbox.inTx != 2 {
		t.Errorf("the outbox got %+v", outbox.topics)
	}
	equal(t, published.Load(), 0, "the Router published too")
	w.hears("produced", 2)
}

type countingPublisher struct{ n *atomic.Int64 }

func (p countingPublisher) Publish(_ string, msgs ...*message.Message) error {
	p.n.Add(int64(len(msgs)))
	return nil
}
func (countingPublisher) Close() error { return nil }

func TestProducedMessagesAreRefusedWithoutAnOutbox(t *testing.T) {
	produce := func(w *world) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			_, err := w.handler(msg)
			return []*message.Message{event(context.Background(), "i")}, err
		}
	}
	w := newWorld(t)
	if err := w.deliver(produce(w), event(t.Context(), "e")); !errors.Is(err, inbox.ErrProducedNeedsOutbox) ||
		!strings.Contains(err.Error(), "inbox.Publisher") {
		t.Errorf("without a publisher: %v", err)
	}
	w.effect("e", 0)

	var outbox publisher
	w = newWorld(t)
	w.in.opts = append(w.in.opts, inbox.Publisher(&outbox))
	if err := w.deliver(produce(w), event(t.Context(), "e")); err == nil || len(outbox.topics) != 0 {
		t.Errorf("without a topic: %v", err)
	}
	w.effect("e", 0)
}

// Produced gets what every other callback gets: the event, its time, and the time since the message
// came. The identity of a message is asked for once.
func TestProducedIsToldOfTheDelivery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []coreinbox.Info
		asked := 0
		observer := &coreinbox.Observer{
			Produced:  func(i coreinbox.Info, _ int) { told = append(told, i) },
			Processed: func(i coreinbox.Info) { told = append(told, i) },
		}
		id := func(coreinbox.Message) (string, error) { asked++; return "e", nil }
		w := newWorld(t, func(c *coreinbox.Config) { c.Observer, c.EventID = observer, id })
		a := newAtLeastOnce(t, func(c *coreinbox.AtLeastOnceConfig) { c.Observer, c.EventID = observer, id })
		out := inbox.Publisher(&publisher{})
		w.in.opts, a.opts = append(w.in.opts, out), append(a.opts, out)
		at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		for _, middleware := range []message.HandlerMiddleware{w.in.Middleware, a.Middleware} {
			told, asked = nil, 0
			pubsub := routed(t, func(r *message.Router, ps *gochannel.GoChannel) {
				r.AddMiddleware(middleware)
				r.AddHandler("h", "orders", ps, "invoices", &publisher{},
					func(msg *message.Message) ([]*message.Message, error) {
						time.Sleep(time.Second)
						return []*message.Message{event(msg.Context(), "i")}, nil
					})
			})
			must(t, pubsub.Publish("orders", event(t.Context(), "e", "ce_id", "e",
				"ce_time", at.Format(time.RFC3339))))
			if len(told) != 2 || asked != 1 {
				t.Fatalf("told %d times, asked for the id %d times", len(told), asked)
			}
			for _, i := range told {
				if i.Duration != time.Second || !i.OccurredAt.Equal(at) || i.Event != told[1].Event ||
					i.Event.EventID != "e" {
					t.Errorf("%+v", i)
				}
			}
		}
	})
}
