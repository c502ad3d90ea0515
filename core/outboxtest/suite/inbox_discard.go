package suite

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox"
)

func inboxDiscardCases() []inboxCase {
	return []inboxCase{
		{"only dead events", inboxDiscardOnlyDead},
		{"a discarded event is never handled", inboxDiscardStays},
		{"the cleanup deletes a discarded event", inboxDiscardCleanup},
		{"a discard and a redrive at once", inboxDiscardOrRedrive},
		{"bad requests", inboxDiscardRefused},
	}
}

func (f *inboxFixture) discard(s inbox.Store, want int, keys ...inbox.Key) {
	f.Helper()
	n, err := s.Discard(f.Context(), keys, "ada", "spam")
	f.check(err)
	if n != want {
		f.Errorf("%d events discarded, want %d", n, want)
	}
}

// wantDead compares the sorted ids of the dead events of consumer billing.
func (f *inboxFixture) wantDead(want ...string) {
	f.Helper()
	list, err := f.Store.ListDead(f.Context(), inbox.DeadQuery{Consumer: "billing"})
	f.check(err)
	var got []string
	for _, d := range list {
		got = append(got, d.EventID)
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		f.Errorf("%v are dead, want %v", got, want)
	}
}

// inboxDiscardOnlyDead names events of every kind. Only the dead ones change, and each counts once.
func inboxDiscardOnlyDead(f *inboxFixture) {
	f.begin(nil, inboxEvent("processed"))
	f.fail(inboxEvent("failed"), false)
	f.fail(inboxEvent("redriven"), true)
	f.redrive(inboxEvent("redriven").Key)
	for _, id := range []string{"b", "a", "other"} {
		f.fail(inboxEvent(id), true)
	}
	elsewhere := handled(inboxHandlers[1], "a")
	f.fail(elsewhere, true)
	var keys []inbox.Key
	for _, id := range []string{"processed", "b", "failed", "unknown", "redriven", "a", "b"} {
		keys = append(keys, inboxEvent(id).Key)
	}
	f.discard(f.Store, 2, keys...)
	f.discard(f.Another(), 0, keys...)
	f.wantDead("a", "other")
	for id, want := range map[string]inbox.State{
		"processed": inbox.StateProcessed, "a": inbox.StateProcessed, "b": inbox.StateProcessed,
		"failed": inbox.StateFresh, "redriven": inbox.StateFresh, "unknown": inbox.StateFresh, "other": inbox.StateDead,
	} {
		got, _ := f.beginOne(f.Store, inboxEvent(id), nil)
		f.wantState(id, got, want)
	}
	got, _ := f.beginOne(f.Store, elsewhere, nil)
	f.wantState("a of another handler", got, inbox.StateDead)
}

// inboxDiscardStays delivers a discarded event again, alone and in a batch, with a Cache and
// without one, and redrives it.
func inboxDiscardStays(f *inboxFixture) {
	for id, cache := range map[string]inbox.Cache{"a": nil, "b": &inboxCache{}} {
		c, key := f.cached(cache), inboxEvent(id).Key
		c.refuse = true
		c.deliver(id, inbox.Dead)
		c.refuse = false
		n, err := c.in.Discard(f.Context(), []inbox.Key{key}, "ada", "spam")
		if f.check(err); n != 1 {
			f.Errorf("%d events discarded, want 1", n)
		}
		f.wantDead()
		c.deliver(id, inbox.Ack)
		c.deliverBatch(inbox.Ack, id, id)
		n, err = c.in.Redrive(f.Context(), []inbox.Key{key}, "bob", "why")
		if f.check(err); n != 0 {
			f.Error("a discarded event was redriven")
		}
		c.deliver(id, inbox.Ack)
		// A failure that is recorded late does not make it dead again.
		state, _, err := f.Store.Fail(f.Context(), inbox.Failure{Event: inboxEvent(id), Dead: true})
		f.check(err)
		f.wantState("a discarded event after a late failure", state, inbox.StateProcessed)
		got, attempt := f.beginOne(f.Another(), inboxEvent(id), nil)
		if f.wantState("a discarded event", got, inbox.StateProcessed); attempt != 1 {
			f.Errorf("it died with attempt %d, want 1", attempt)
		}
		c.wantHandled(0)
		f.wantDead()
	}
}

// inboxDiscardCleanup cleans up in another process. Then the event is new, with fresh attempts.
func inboxDiscardCleanup(f *inboxFixture) {
	for _, id := range []string{"a", "b", "dead"} {
		f.fail(inboxEvent(id), true)
	}
	f.begin(nil, inboxEvent("processed"))
	f.discard(f.Store, 2, inboxEvent("a").Key, inboxEvent("b").Key)
	if n, err := f.Store.Cleanup(f.Context(), "billing", time.Hour, 1000); n != 0 || err != nil {
		f.Errorf("young ones: %d were deleted, %v", n, err)
	}
	f.clean(f.Another(), "billing", 3)
	f.clean(f.Another(), "billing", 0)
	f.wantDead("dead")
	state, attempts, err := f.Store.Fail(f.Context(), inbox.Failure{Event: inboxEvent("a"), MaxAttempts: 2})
	if f.check(err); state != 0 || attempts != 1 {
		f.Errorf("the first failure after the cleanup: attempt %d, %s", attempts, state)
	}
	got, attempt := f.beginOne(f.Store, inboxEvent("b"), nil)
	if f.wantState("the event after the cleanup", got, inbox.StateFresh); attempt != 1 {
		f.Errorf("attempt %d after the cleanup, want 1", attempt)
	}
}

// inboxDiscardOrRedrive has people discard and redrive the same events at the same time, in
// different orders, while copies arrive. Each event is either discarded or redriven, and is handled
// only if it was redriven.
func inboxDiscardOrRedrive(f *inboxFixture) {
	const events = 8
	keys, reverse := make([]inbox.Key, events), make([]inbox.Key, events)
	for n := range events {
		e := inboxEvent(fmt.Sprintf("e%d", n))
		keys[n], reverse[events-1-n] = e.Key, e.Key
		f.fail(e, true)
	}
	var discarded, redriven, handled atomic.Int64
	var wg sync.WaitGroup
	for p := range 4 {
		s, mine := f.Another(), keys
		if p >= 2 {
			mine = reverse
		}
		wg.Go(func() {
			for n := range events {
				do, sum := s.Discard, &discarded
				if (n+p)%2 == 0 {
					do, sum = s.Redrive, &redriven
				}
				changed, err := do(f.Context(), mine[n:min(n+2, events)], "ada", "at once")
				if err != nil {
					f.Error(err)
				}
				sum.Add(int64(changed))
			}
		})
	}
	in, err := inbox.New(inbox.Config{
		Consumer: "billing", Handler: "invoice", Transactor: f.Transactor, Store: f.Another(),
		Logger: slog.New(slog.DiscardHandler),
	})
	f.check(err)
	deliver := func() {
		for _, k := range keys {
			r := in.Process(f.Context(), inbox.Message{ID: k.EventID},
				func(_ context.Context, tx core.Tx, _ inbox.Message) error {
					tx.OnOutcome(func(o core.Outcome) {
						if o == core.Committed {
							handled.Add(1)
						}
					})
					return nil
				})
			if r.Action == inbox.Retry {
				f.Errorf("%s: %v", k.EventID, r.Err)
			}
		}
	}
	wg.Go(deliver)
	wg.Wait()
	f.wantDead()
	deliver()
	if d, r := discarded.Load(), redriven.Load(); d+r != events || handled.Load() != r {
		f.Errorf("%d discarded, %d redriven and %d handled of %d events", d, r, handled.Load(), events)
	}
}

// inboxDiscardRefused leaves out what a request needs. Nothing changes.
func inboxDiscardRefused(f *inboxFixture) {
	e := inboxEvent("e")
	f.fail(e, true)
	c := f.cached(nil)
	own, others := []inbox.Key{e.Key}, []inbox.Key{e.Key, {Consumer: "other", Handler: "invoice", EventID: "e"}}
	for name, req := range map[string]struct {
		keys          []inbox.Key
		actor, reason string
	}{
		"no keys": {nil, "ada", "spam"}, "no actor": {own, " ", "spam"}, "no reason": {own, "ada", ""},
		"another consumer": {others, "ada", "spam"},
	} {
		if n, err := c.in.Discard(f.Context(), req.keys, req.actor, req.reason); n != 0 ||
			!errors.Is(err, inbox.ErrInvalidRequest) {
			f.Errorf("%s: %d, %v", name, n, err)
		}
	}
	if n, err := f.Store.Discard(f.Context(), []inbox.Key{e.Key, {Consumer: "billing"}}, "ada", "spam"); n != 0 ||
		!errors.Is(err, inbox.ErrInvalidRequest) {
		f.Errorf("a key without parts: %d, %v", n, err)
	}
	f.wantDead("e")
}
