package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/ormoutbox/ormoutbox/core"
	coreinbox "github.com/ormoutbox/ormoutbox/core/inbox"
)

// batches runs batches and notes which ids each call of the function got.
type batches struct {
	w     *world
	calls [][]string
	bad   string // the id of a message that cannot be processed
}

func (b *batches) fn(ctx context.Context, fresh []*message.Message) error {
	var ids []string
	for _, msg := range fresh {
		id := msg.Metadata.Get(core.HeaderEventID)
		ids = append(ids, id)
		equal(b.w.t, msg.Context(), ctx, "%s does not carry the transaction", id)
		if err := b.w.apply(ctx, id); err != nil {
			return err
		}
	}
	b.calls = append(b.calls, ids)
	if slices.Contains(ids, b.bad) {
		return core.Permanent(errHandler)
	}
	return nil
}

func (b *batches) run(ids ...string) []error {
	var msgs []*message.Message
	for _, id := range ids {
		msgs = append(msgs, event(b.w.t.Context(), id))
	}
	errs := b.w.in.ProcessBatch(b.w.t.Context(), msgs, b.fn)
	for _, msg := range msgs {
		if _, ok := core.TxFromContext(msg.Context()); ok {
			b.w.t.Error("a message still carries the transaction")
		}
	}
	return errs
}

func TestBatchProcessesFreshMessagesInOneTransaction(t *testing.T) {
	b := &batches{w: newWorld(t)}
	for _, ids := range [][]string{{"b", "a", "c", "a"}, {"a", "d", "b"}, {"a", "b"}, nil} {
		for n, err := range b.run(ids...) {
			if err != nil {
				t.Errorf("%v: message %d: %v", ids, n, err)
			}
		}
	}
	if got, want := fmt.Sprint(b.calls), "[[b a c] [d]]"; got != want {
		t.Errorf("called with %s, want %s", got, want)
	}
	for _, id := range []string{"a", "b", "c", "d"} {
		b.w.effect(id, 1)
	}
	b.w.hears("processed", 4)
	b.w.hears("duplicate", 5)
}

func TestBatchFallsBackToSingles(t *testing.T) {
	b := &batches{w: newWorld(t), bad: "bad"}
	errs := b.run("a", "bad", "b")
	if errs[0] != nil || !errors.Is(errs[1], coreinbox.ErrDead) || errs[2] != nil {
		t.Fatalf("%v", errs)
	}
	if got, want := fmt.Sprint(b.calls), "[[a bad b] [a] [bad] [b]]"; got != want {
		t.Errorf("called with %s, want %s", got, want)
	}
	for id, n := range map[string]int{"a": 1, "b": 1, "bad": 0} {
		b.w.effect(id, n)
	}
	b.calls = nil
	if errs := b.run("bad", "c"); !errors.Is(errs[0], coreinbox.ErrDead) || errs[1] != nil ||
		fmt.Sprint(b.calls) != "[[c]]" {
		t.Errorf("with a dead message: %v, called with %v", errs, b.calls)
	}
}

// One message makes the function panic. The other messages are processed, and its event is dead
// after MaxAttempts.
func TestBatchPanicsAreCounted(t *testing.T) {
	w := newWorld(t, func(c *coreinbox.Config) { c.MaxAttempts = 2 })
	fn := func(ctx context.Context, fresh []*message.Message) error {
		for _, msg := range fresh {
			id := msg.Metadata.Get(core.HeaderEventID)
			if err := w.apply(ctx, id); err != nil {
				return err
			}
			if id == "bad" {
				panic("boom")
			}
		}
		return nil
	}
	for n := range 3 {
		errs := w.in.ProcessBatch(t.Context(), []*message.Message{
			event(t.Context(), "a"), event(t.Context(), "bad"),
			event(t.Context(), "b"),
		}, fn)
		if errs[0] != nil || errs[2] != nil || errs[1] == nil || errors.Is(errs[1], coreinbox.ErrDead) != (n >= 1) ||
			n < 2 && (!errors.Is(errs[1], coreinbox.ErrPanicked) || !strings.Contains(errs[1].Error(), "boom")) {
			t.Errorf("batch %d: %v", n, errs)
		}
	}
	for id, n := range map[string]int{"a": 1, "b": 1, "bad": 0} {
		w.effect(id, n)
	}
	w.hears("failed", 1)
	w.hears("dead", 2)
}

func TestBatchAnswersEachMessage(t *testing.T) {
	w := newWorld(t, func(c *coreinbox.Config) { c.OnlyNewer = []string{"handler"} })
	b := &batches{w: w}
	msgs := []*message.Message{
		event(t.Context(), "new", "key_seq", "2", "partition_key", "k"),
		message.NewMessage("", nil),
		event(t.Context(), "old", "key_seq", "1", "partition_key", "k"),
	}
	errs := w.in.ProcessBatch(t.Context(), msgs, b.fn)
	if errs[0] != nil || !errors.Is(errs[1], coreinbox.ErrInvalidMessage) || errs[2] != nil {
		t.Errorf("%v", errs)
	}
	w.effect("new", 1)
	w.effect("old", 0)
	w.hears("stale", 1)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, err := range w.in.ProcessBatch(ctx, []*message.Message{event(t.Context(), "a"), event(t.Context(), "b")},
		b.fn) {
		wantErr(t, err, context.Canceled, "canceled")
	}
}

// Eight copies come at once: the event has one effect, and no copy ends with an error.
func TestConcurrentCopies(t *testing.T) {
	w := newWorld(t)
	h, calls := w.times(1, errHandler) // the first copy rolls back, and another one goes on
	var wg sync.WaitGroup
	var failures atomic.Int64
	for range 8 {
		wg.Go(func() {
			if _, err := w.in.Middleware(h)(event(context.Background(), "e")); err != nil {
				failures.Add(1)
			}
		})
	}
	wg.Wait()
	w.effect("e", 1)
	// If another copy has succeeded before the failure was recorded, the copy that failed is a
	// duplicate.
	if calls.Load() != 2 || failures.Load() > 1 {
		t.Errorf("%d calls and %d failures, want 2 and at most 1", calls.Load(), failures.Load())
	}
}
