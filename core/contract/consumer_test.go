package contract_test

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/contract"
	"github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/inbox/inboxtest"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/relay"
)

// before is the declaration that a consumer of the last release has.
func before() *contract.EventType[placed2] {
	return contract.Must(contract.Define(contract.Spec[placed2]{
		Type: "order.placed", Owner: "o", Description: "d", Example: placed2{"o", 1},
		Older: []contract.Older{contract.From(1, placed1{"o", 1}, up1)},
	}))
}

type consumer struct {
	*testing.T
	in   *inbox.Inbox
	seen map[string]int // committed calls, by event id
}

func newConsumer(t *testing.T) *consumer {
	t.Helper()
	in, err := inbox.New(inbox.Config{
		Consumer: "billing", Handler: "invoice", Transactor: outboxtest.NewRepository().Transactor(),
		Store: inboxtest.NewStore(), MaxAttempts: 2, MinAge: -1, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return &consumer{t, in, map[string]int{}}
}

func (c *consumer) handlers(cfg contract.HandlersConfig, list ...contract.Handler) *contract.Handlers {
	c.Helper()
	cfg.Logger = slog.New(slog.DiscardHandler)
	h, err := contract.NewHandlers(cfg, list...)
	if err != nil {
		c.Fatal(err)
	}
	return h
}

func (c *consumer) process(h *contract.Handlers, m contract.Message) inbox.Result {
	return c.in.Process(c.Context(), inbox.Message{Topic: "orders", Headers: m.Headers, Payload: m.Payload},
		func(ctx context.Context, tx core.Tx, msg inbox.Message) error {
			tx.OnOutcome(func(o core.Outcome) {
				if o == core.Committed {
					c.seen[msg.Headers[core.HeaderEventID]]++
				}
			})
			return h.Handle(ctx, contract.Message{Headers: msg.Headers, Payload: msg.Payload})
		})
}

func handled[T any](context.Context, contract.Message, T) error { return nil }

// While a newer producer runs, the message waits and spends no attempt, however often it comes.
// After the consumer is deployed, the message is processed once, without a redrive.
func TestInboxWaitsForTheDeployment(t *testing.T) {
	c := newConsumer(t)
	old := c.handlers(contract.HandlersConfig{}, before().Handle(handled[placed2]))
	newer := message("order.placed", "3", `{"order_id":"o-7","cents":1}`)
	for range 20 {
		if r := c.process(old, newer); r.Action != inbox.Retry || !errors.Is(r.Err, contract.ErrNewerVersion) {
			t.Fatalf("%s, %v", r.Action, r.Err)
		}
	}
	deployed := c.handlers(contract.HandlersConfig{}, placed().Handle(handled[placed3]))
	for range 2 {
		if r := c.process(deployed, newer); r.Action != inbox.Ack {
			t.Errorf("%s, %v", r.Action, r.Err)
		}
	}
	if c.seen["e"] != 1 {
		t.Errorf("%v", c.seen)
	}
}

// A message that this program will never read is dead at once, and a person sees it. Such a message
// has an unknown type, a broken payload, or a newer version under the policy for it. After the
// repair, a redriven message is processed.
func TestInboxParksWhatCannotBeRead(t *testing.T) {
	for name, tc := range map[string]struct {
		cfg contract.HandlersConfig
		m   contract.Message
		is  error
	}{
		"an unknown type": {contract.HandlersConfig{}, message("order.paid", "1", "{}"), contract.ErrUnknownType},
		"a broken payload": {
			contract.HandlersConfig{}, message("order.placed", "2", `{"id":"o"}`), contract.ErrInvalidData,
		},
		"a newer version": {
			contract.HandlersConfig{NewerVersion: contract.DeadLetter},
			message("order.placed", "3", "{}"),
			contract.ErrNewerVersion,
		},
	} {
		c := newConsumer(t)
		r := c.process(c.handlers(tc.cfg, before().Handle(handled[placed2])), tc.m)
		if r.Action != inbox.Dead || !errors.Is(r.Err, tc.is) {
			t.Errorf("%s: %s, %v", name, r.Action, r.Err)
		}
		dead, err := c.in.ListDead(t.Context(), inbox.DeadQuery{})
		if err != nil || len(dead) != 1 {
			t.Fatalf("%s: %+v, %v", name, dead, err)
		}
		changed, err := c.in.Redrive(t.Context(), []inbox.Key{dead[0].Key}, "ada", "the schema was repaired")
		if changed != 1 || err != nil {
			t.Fatalf("%s: %d, %v", name, changed, err)
		}
		repaired := message("order.placed", "2", `{"id":"o","cents":1}`)
		r = c.process(c.handlers(tc.cfg, before().Handle(handled[placed2])), repaired)
		if r.Action != inbox.Ack || c.seen["e"] != 1 {
			t.Errorf("%s: after the redrive: %s, %v, %v", name, r.Action, r.Err, c.seen)
		}
	}
}

// In the relay itself an event of a newer version holds up its own key only. It spends no attempt,
// and other keys and topics go on.
func TestRelayWaitsForTheDeployment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &consumer{T: t}
		repo, published := outboxtest.NewRepository(), make(chan string, 10)
		var handlers atomic.Pointer[contract.Handlers]
		handlers.Store(c.handlers(contract.HandlersConfig{}, before().Handle(handled[placed2])))
		var waited atomic.Int32
		router := core.NewRouter()
		router.HandleFunc("sales", func(ctx context.Context, d core.Delivery) error {
			if d.Attempt != 1 {
				t.Errorf("%s: attempt %d", d.AggregateID, d.Attempt)
			}
			err := handlers.Load().Handle(ctx, contract.MessageOf(d))
			if err == nil {
				published <- d.AggregateID
			} else {
				waited.Add(1)
			}
			return err
		})
		outbox, err := core.New(core.Config{
			Repository: repo, Publisher: router, Relay: relay.Config{}, Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- outbox.Run(ctx) }()
		publish := func(events ...core.Event) {
			err := repo.Transactor().RunInTx(t.Context(), func(ctx context.Context, tx core.Tx) error {
				_, err := outbox.Publish(ctx, tx, events...)
				return err
			})
			if err != nil {
				t.Error(err)
			}
		}
		publish(placed().Event(placed3{ID: "newer", Cents: 1}))
		time.Sleep(time.Minute) // it is tried again and again
		if n := waited.Load(); n < 3 {
			t.Errorf("%d tries in a minute", n)
		}
		publish(core.Event{
			Type: "order.placed", SchemaVersion: 2, Topic: "sales", AggregateID: "other", Data: placed2{"other", 1},
		})
		if id := <-published; id != "other" {
			t.Errorf("%s was handled", id)
		}
		handlers.Store(c.handlers(contract.HandlersConfig{}, placed().Handle(handled[placed3])))
		if id := <-published; id != "newer" {
			t.Errorf("%s was handled", id)
		}
		stop()
		if err := <-ended; err != nil || len(published) > 0 {
			t.Errorf("%v, %d more", err, len(published))
		}
	})
}
