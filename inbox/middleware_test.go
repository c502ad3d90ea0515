package inbox_test

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/ormoutbox/ormoutbox/core"
	coreinbox "github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/inbox"
)

var errHandler = errors.New("the handler failed")

// times returns a handler that applies each message, and then fails with err in its first n calls.
func (w *world) times(n int, err error) (message.HandlerFunc, *atomic.Int64) {
	var calls atomic.Int64
	return func(msg *message.Message) ([]*message.Message, error) {
		call := calls.Add(1)
		if aerr := w.apply(msg.Context(), msg.Metadata.Get(core.HeaderEventID)); aerr != nil {
			return nil, aerr
		}
		if call <= int64(n) {
			return nil, err
		}
		return nil, nil
	}, &calls
}

func TestDuplicatesAreAcknowledgedWithoutTheHandler(t *testing.T) {
	w := newWorld(t)
	for range 3 {
		must(t, w.deliver(w.handler, event(t.Context(), "e", "event_type", "order.placed")))
	}
	w.effect("e", 1)
	w.hears("processed", 1)
	w.hears("duplicate", 2)
	if i := w.infos[0]; i.Attempt != 1 || i.Event.Type != "order.placed" || i.Duration <= 0 || i.Err != nil {
		t.Errorf("told %+v", i)
	}
}

// Two keys are different if any part differs in any byte.
func TestDifferentKeysAreDifferentEvents(t *testing.T) {
	w := newWorld(t)
	ids := []string{"e", "E", "e ", "é", "e\u0301", "ß", "ss"}
	for _, id := range ids {
		for _, tenant := range []string{"", "a", "A"} {
			must(t, w.deliver(w.handler, event(t.Context(), id, "tenant_id", tenant)))
		}
	}
	for _, id := range ids {
		w.effect(id, 3)
	}
}

func TestTwoHandlersOfOneTopicBothRun(t *testing.T) {
	w := newWorld(t)
	var one, two atomic.Int64
	count := func(n *atomic.Int64) message.NoPublishHandlerFunc {
		return func(*message.Message) error { n.Add(1); return nil }
	}
	pubsub := routed(t, func(r *message.Router, ps *gochannel.GoChannel) {
		r.AddMiddleware(w.in.Middleware)
		r.AddConsumerHandler("one", "orders", ps, count(&one))
		r.AddConsumerHandler("two", "orders", ps, count(&two))
	})
	for range 2 {
		must(t, pubsub.Publish("orders", event(t.Context(), "e")))
	}
	if one.Load() != 1 || two.Load() != 1 {
		t.Errorf("ran %d and %d times, want 1 and 1", one.Load(), two.Load())
	}
	w.hears("duplicate", 2)
}

// A failure leaves only its record, and the next delivery succeeds.
func TestAFailureIsRolledBackAndDeliveredAgain(t *testing.T) {
	w := newWorld(t)
	h, calls := w.times(2, errHandler)
	pubsub := routed(t, func(r *message.Router, ps *gochannel.GoChannel) {
		r.AddMiddleware(w.in.Middleware)
		r.AddConsumerHandler("h", "orders", ps, func(msg *message.Message) error { _, err := h(msg); return err })
	})
	if err := pubsub.Publish("orders", event(t.Context(), "e")); err != nil { // returns when acknowledged
		t.Fatal(err)
	}
	equal(t, calls.Load(), 3, "calls")
	w.effect("e", 1)
	w.hears("failed", 2)
	w.hears("processed", 1)
	if last := w.infos[len(w.infos)-1]; last.Attempt != 3 {
		t.Errorf("processed in attempt %d, want 3", last.Attempt)
	}
}

func TestAPanicRollsBackAndGoesOn(t *testing.T) {
	w := newWorld(t, func(c *coreinbox.Config) { c.MaxAttempts = 2 })
	h := func(msg *message.Message) ([]*message.Message, error) {
		_ = w.apply(msg.Context(), "e")
		panic("boom")
	}
	for range 2 {
		msg := event(t.Context(), "e")
		func() {
			defer func() {
				equal(t, recover(), "boom", "recovered")
			}()
			_ = w.deliver(h, msg)
		}()
		if _, in := core.TxFromContext(msg.Context()); in {
			t.Error("the message still carries the transaction")
		}
	}
	w.effect("e", 0)
	wantErr(t, w.deliver(w.handler, event(t.Context(), "e")), coreinbox.ErrDead, "after two panics")
}

// A transaction that failed because of others is run again as a whole.
func TestRetryableFailuresRunTheTransactionAgain(t *testing.T) {
	w := newWorld(t)
	h, calls := w.times(3, core.ErrTxAborted)
	must(t, w.deliver(h, event(t.Context(), "e")))
	equal(t, calls.Load(), 4, "calls")
	w.effect("e", 1)
	w.hears("failed", 0)

	h, calls = w.times(1000, core.ErrTxAborted)
	wantErr(t, w.deliver(h, event(t.Context(), "bounded")), core.ErrTxAborted, "deliver")
	equal(t, calls.Load(), 10, "calls")
}

// The message is acknowledged only after the commit. A transaction whose commit failed because of
// others is run again. A commit without an answer is an error.
func TestTheCommitDecides(t *testing.T) {
	for name, tt := range map[string]struct {
		fault outboxtest.CommitFault
		want  error
	}{"refused": {outboxtest.CommitRefused, nil}, "without an answer": {
		outboxtest.CommitNotSent,
		core.ErrCommitUnknown,
	}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			calls := 0
			h := func(msg *message.Message) ([]*message.Message, error) {
				if calls++; calls == 1 {
					tx, _ := core.TxFromContext(msg.Context())
					tx.(*outboxtest.Tx).FailCommit(tt.fault)
				}
				return w.handler(msg)
			}
			wantErr(t, w.deliver(h, event(t.Context(), "e")), tt.want, "deliver")
			must(t, w.deliver(h, event(t.Context(), "e")))
			w.effect("e", 1)
			equal(t, calls, 2, "calls")
		})
	}
}

func TestAPoisonQueueInsideIsNoticed(t *testing.T) {
	w := newWorld(t)
	// Watermill's poison queue does the same.
	h := func(msg *message.Message) ([]*message.Message, error) {
		_ = w.apply(msg.Context(), "e")
		msg.Metadata.Set("reason_poisoned", errHandler.Error())
		return nil, nil
	}
	wantErr(t, w.deliver(h, event(t.Context(), "e")), inbox.ErrPoisonInside, "deliver")
	w.effect("e", 0)

	// A message that comes back from a poison queue still says why it was there.
	if err := w.deliver(w.handler, event(t.Context(), "e", "reason_poisoned", "last week")); err != nil {
		t.Errorf("%v", err)
	}
	w.effect("e", 1)
}

// In a transaction of a caller, the effects would commit after the acknowledgement. With two
// inboxes, the second would find the row of the first.
func TestATransactionInTheContextIsRefused(t *testing.T) {
	w := newWorld(t)
	twice := w.in.Middleware(w.in.Middleware(w.handler))
	wantErr(t, errOf(twice(event(t.Context(), "e"))), coreinbox.ErrInTransaction, "twice")
	w.effect("e", 0)
	tx, err := w.repo.Begin(t.Context())
	must(t, err)
	defer tx.Rollback()
	for _, err := range w.in.ProcessBatch(core.ContextWithTx(t.Context(), tx),
		[]*message.Message{event(t.Context(), "e")}, nil) {
		wantErr(t, err, coreinbox.ErrInTransaction, "batch")
	}
}
