package once_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/once/command"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
)

// decide is Queue.Redrive or Queue.Discard.
type decide func(ctx context.Context, tx core.Tx, id, actor, reason string) (bool, error)

// decided has a person decide about an effect, in a transaction.
func (w *effectWorld) decided(do decide, id string) (changed bool) {
	w.t.Helper()
	fixture.NoError(w.t, w.inTx(func(ctx context.Context, tx core.Tx) (err error) {
		changed, err = do(ctx, tx, id, "ada", "spam")
		return err
	}))
	return changed
}

// die makes an effect dead, and returns the claim of the worker that gave it up.
func (w *effectWorld) die(rec command.Record) command.Claim {
	w.t.Helper()
	claim := command.Claim{ID: rec.ID, Owner: "worker of " + rec.Key}
	got, err := w.store.Claim(w.t.Context(), rec.ID, claim.Owner, time.Minute)
	fixture.NoError(w.t, err)
	claim.Fence = got.Fence
	fixture.NoError(w.t, w.store.Fail(w.t.Context(), claim, command.Failure{Dead: true, Code: "permanent", Text: "no"}))
	return claim
}

// Only a dead effect can be discarded. Nothing executes it after that: no event, no redrive, no
// search for overdue effects, no late worker and no further Enqueue. It is deleted like a completed
// effect.
func TestEffectDiscard(t *testing.T) {
	t.Parallel()
	eachEffectWorld(t, func(t *testing.T, w *effectWorld) {
		var recs []command.Record
		for _, key := range []string{"dead", "pending", "failed", "done"} {
			recs = append(recs, w.mustEnqueue(mail(key)))
		}
		dead, pending, failed, done := recs[0], recs[1], recs[2], recs[3]
		claim := w.die(dead)
		worker := w.worker(sent)
		fixture.NoError(t, worker.Publish(t.Context(), w.delivery(done, 1)))
		got, err := w.store.Claim(t.Context(), failed.ID, "f", time.Minute)
		fixture.NoError(t, err)
		for _, end := range []func() error{
			func() error { return nil },
			func() error {
				of := command.Claim{ID: failed.ID, Owner: "f", Fence: got.Fence}
				return w.store.Fail(t.Context(), of, command.Failure{})
			},
		} {
			fixture.NoError(t, end()) // the effect is being executed, and then it has failed
			for _, rec := range []command.Record{pending, failed, done} {
				if w.decided(w.queue.Discard, rec.ID) {
					t.Errorf("%s was discarded", rec.Key)
				}
			}
		}
		rolledBack := errors.New("rolled back")
		for _, bad := range []struct {
			id, actor, reason string
			want              error
		}{
			{dead.ID, " ", "spam", once.ErrInvalidRequest},
			{dead.ID, "ada", "", once.ErrInvalidRequest},
			{"", "ada", "spam", once.ErrInvalidRequest},
			{"nothing", "ada", "spam", command.ErrNoEffect},
			{dead.ID, "ada", "spam", rolledBack},
		} {
			err := w.inTx(func(ctx context.Context, tx core.Tx) error {
				if _, err := w.queue.Discard(ctx, tx, bad.id, bad.actor, bad.reason); err != nil {
					return err
				}
				return rolledBack
			})
			fixture.Check(t, errors.Is(err, bad.want), "%+v: %v", bad, err)
		}
		if _, err := w.queue.Discard(t.Context(), nil, dead.ID, "ada", "spam"); !errors.Is(err, core.ErrNoTransaction) {
			t.Errorf("without a transaction: %v", err)
		}
		w.await(mail("dead"), command.StatusDead)

		fixture.Must(t, w.decided(w.queue.Discard, dead.ID), "the dead effect was not discarded")
		fixture.Check(t, !w.decided(w.queue.Discard, dead.ID) && !w.decided(w.queue.Redrive, dead.ID),
			"a discarded effect was changed")
		rec := w.await(mail("dead"), command.StatusDiscarded)
		fixture.Check(t, rec.Error == "ada: spam" && !rec.DoneAt.IsZero() && rec.ExternalRef == "" && rec.Attempts == 1,
			"%+v", rec)
		// A version without Discard reads the status alone.
		if n := fixture.Count(t, w.pool, "SELECT COUNT(*) FROM side_effect_command WHERE status = 2"); n != 2 {
			t.Errorf("%d rows are completed, want 2", n)
		}
		if again, added, err := w.enqueue(mail("dead")); added || err != nil ||
			again.Status != command.StatusDiscarded {
			t.Errorf("enqueued again: %+v, %t, %v", again, added, err)
		}
		if receipt, err := worker.PublishWithReceipt(t.Context(), w.delivery(dead, 1)); err != nil ||
			receipt != "discarded" {
			t.Errorf("its event: %q, %v", receipt, err)
		}
		for name, err := range map[string]error{
			"complete": w.store.Complete(t.Context(), claim, "late"),
			"fail":     w.store.Fail(t.Context(), claim, command.Failure{Dead: true}),
		} {
			fixture.Check(t, errors.Is(err, once.ErrLeaseLost), "%s by a late worker: %v", name, err)
		}
		w.ago("available_at", time.Hour, "dead")
		if _, err := worker.Sweep(t.Context()); err != nil {
			t.Error(err)
		}
		if calls := w.called(); len(calls) != 1 || calls[0].Key != "done" {
			t.Errorf("%+v", calls)
		}
		backlog, err := w.queue.Backlog(t.Context())
		fixture.Check(t, err == nil && len(backlog) == 1 && backlog[0].Dead == 0 && backlog[0].Pending == 2,
			"%+v, %v", backlog, err)
		for status, want := range map[command.Status]string{
			command.StatusDiscarded: dead.ID, command.StatusCompleted: done.ID,
		} {
			list, err := w.queue.List(t.Context(), command.Query{Status: status})
			fixture.Check(t, err == nil && len(list) == 1 && list[0].ID == want && list[0].Status == status,
				"%s: %+v, %v", status, list, err)
		}
		w.ago("done_at", 31*24*time.Hour, "dead")
		if n, err := w.queue.Cleanup(t.Context()); n != 1 || err != nil {
			t.Errorf("%d were deleted, %v", n, err)
		}
		w.mustEnqueue(mail("dead"))
	})
}

// Four people discard or redrive a dead effect at once. One of them succeeds.
func TestEffectDiscardOrRedrive(t *testing.T) {
	t.Parallel()
	eachEffectWorld(t, func(t *testing.T, w *effectWorld) {
		for _, key := range []string{"1", "2", "3"} {
			rec := w.mustEnqueue(mail(key))
			w.die(rec)
			var discarded, redriven atomic.Int64
			var wg sync.WaitGroup
			for range 2 {
				for sum, do := range map[*atomic.Int64]decide{&discarded: w.queue.Discard, &redriven: w.queue.Redrive} {
					wg.Go(func() {
						if w.decided(do, rec.ID) {
							sum.Add(1)
						}
					})
				}
			}
			wg.Wait()
			want := command.StatusPending
			if discarded.Load() == 1 {
				want = command.StatusDiscarded
			}
			w.await(mail(key), want)
			if d, r := discarded.Load(), redriven.Load(); d > 1 || d+min(r, 1) != 1 {
				t.Errorf("discarded %d times and redriven %d times", d, r)
			}
		}
	})
}
