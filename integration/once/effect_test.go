package once_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/once/command"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
)

// An effect is written with the transaction or not at all, once for each tenant, channel and key.
// The relay has the effect executed.
func TestEffectEnqueue(t *testing.T) {
	t.Parallel()
	eachEffectWorld(t, func(t *testing.T, w *effectWorld) {
		rows := func(want int64) {
			t.Helper()
			if n, events := fixture.Count(t, w.pool, "SELECT COUNT(*) FROM side_effect_command"),
				fixture.Count(t, w.pool, "SELECT COUNT(*) FROM outbox_event"); n != want || events != want {
				t.Errorf("%d effects and %d events, want %d", n, events, want)
			}
		}
		rolledBack := errors.New("rolled back")
		err := w.inTx(func(ctx context.Context, tx core.Tx) error {
			if _, added, err := w.queue.Enqueue(ctx, tx, mail("1")); err != nil || !added {
				t.Errorf("%t, %v", added, err)
			}
			return rolledBack
		})
		if !errors.Is(err, rolledBack) {
			t.Error(err)
		}
		rows(0)
		if _, err := w.queue.Find(t.Context(), "acme", "mail", "1"); !errors.Is(err, command.ErrNoEffect) {
			t.Errorf("after the rollback: %v", err)
		}

		first := w.mustEnqueue(mail("1"))
		for range 2 {
			if rec, added, err := w.enqueue(mail("1")); err != nil || added || rec.ID != first.ID ||
				rec.Status != command.StatusPending {
				t.Errorf("again: %+v, %t, %v", rec, added, err)
			}
		}
		rows(1)
		other := mail("1")
		other.Payload = []byte("something else")
		if _, _, err := w.enqueue(other); !errors.Is(err, once.ErrFingerprintMismatch) {
			t.Errorf("another payload: %v", err)
		}
		for _, e := range []command.Effect{
			mail("1 "),
			{Channel: "mail", Tenant: "Acme", Key: "1"},
			{Channel: "mail", Key: "1"},
			{Channel: "Mail", Tenant: "acme", Key: "1"},
		} {
			w.mustEnqueue(e)
		}
		rows(5)
		if _, _, err := w.queue.Enqueue(t.Context(), nil, mail("x")); !errors.Is(err, core.ErrNoTransaction) {
			t.Errorf("without a transaction: %v", err)
		}
		err = w.inTx(func(ctx context.Context, tx core.Tx) error {
			_, _, err := w.queue.Enqueue(ctx, tx, command.Effect{Key: strings.Repeat("k", 256), Delay: -1})
			return err
		})
		if !errors.Is(err, once.ErrInvalidRequest) || !strings.Contains(err.Error(), "channel") ||
			!strings.Contains(err.Error(), "key") || !strings.Contains(err.Error(), "delay") {
			t.Errorf("invalid: %v", err)
		}

		w.relay(w.worker(sent))
		rec := w.await(mail("1"), command.StatusCompleted)
		want := mail("1")
		if rec.ExternalRef != "ref-1" || rec.DoneAt.IsZero() || string(rec.Payload) != string(want.Payload) ||
			rec.Headers["Subject"] != want.Headers["Subject"] ||
			rec.EventID != "018f" || rec.CorrelationID != "c" || rec.BusinessKey != "order-7" ||
			rec.ContentType != "text/plain" {
			t.Errorf("%+v", rec)
		}
		if rec, added, err := w.enqueue(mail("1")); err != nil || added || rec.ExternalRef != "ref-1" ||
			rec.Status != command.StatusCompleted {
			t.Errorf("enqueued after the end: %+v, %t, %v", rec, added, err)
		}
	})
}

// Sixteen transactions enqueue the same effect at once, and then four deliveries come at once.
// There is one row, one event and one execution.
func TestEffectConcurrently(t *testing.T) {
	t.Parallel()
	eachEffectWorld(t, func(t *testing.T, w *effectWorld) {
		var added atomic.Int64
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				_, fresh, err := w.enqueue(mail("1"))
				if err != nil {
					t.Error(err)
				}
				if fresh {
					added.Add(1)
				}
			})
		}
		wg.Wait()
		if n := fixture.Count(t, w.pool, "SELECT COUNT(*) FROM outbox_event"); added.Load() != 1 || n != 1 {
			t.Errorf("added %d times, %d events", added.Load(), n)
		}
		rec, err := w.queue.Find(t.Context(), "acme", "mail", "1")
		fixture.NoError(t, err)
		entered, leave := make(chan struct{}, 4), make(chan struct{})
		worker := w.worker(func(ctx context.Context, e command.Effect) (string, error) {
			entered <- struct{}{}
			<-leave
			return sent(ctx, e)
		})
		var refused atomic.Int64
		for range 4 {
			wg.Go(func() {
				receipt, err := worker.PublishWithReceipt(t.Context(), w.delivery(rec, 1))
				class, _ := core.ClassOf(err)
				switch {
				case err == nil && receipt == "ref-1":
				case errors.Is(err, once.ErrInProgress) && class == core.ClassKeyUnavailable:
					if refused.Add(1) == 3 {
						close(leave)
					}
				default:
					t.Errorf("%q, %v", receipt, err)
				}
			})
		}
		<-entered
		wg.Wait()
		if n := len(w.called()); n != 1 || refused.Load() != 3 {
			t.Errorf("%d calls, %d refused", n, refused.Load())
		}
	})
}

// The relay tries a failed effect again, with the same key for the other side. An effect that fails
// too often, or permanently, is dead until a person redrives it.
func TestEffectRetryDeadRedrive(t *testing.T) {
	t.Parallel()
	eachEffectWorld(t, func(t *testing.T, w *effectWorld) {
		var healthy atomic.Bool
		var outage atomic.Int64
		w.relay(w.worker(func(ctx context.Context, e command.Effect) (string, error) {
			switch {
			case healthy.Load():
				return sent(ctx, e)
			case e.Key == "bad":
				return "", core.Permanent(errors.New("no such address: https://user:pass@example.org/hook?token=abc"))
			case e.Key == "panic":
				panic("oh no")
			case e.Key == "outage":
				if outage.Add(1) < 5 {
					return "", core.Unavailable(errors.New("down"))
				}
				return sent(ctx, e)
			}
			return "", core.Transient(errors.New("greylisted"))
		}, func(c *command.WorkerConfig) { c.MaxAttempts = 3 }))

		w.mustEnqueue(mail("outage"))
		if rec := w.await(mail("outage"), command.StatusCompleted); rec.Attempts != 0 || outage.Load() != 5 {
			t.Errorf("an outage spends attempts: %+v after %d calls", rec, outage.Load())
		}
		w.mustEnqueue(mail("bad"))
		bad := w.await(mail("bad"), command.StatusDead)
		if bad.Attempts != 1 || bad.ErrorCode != "permanent" || strings.Contains(bad.Error, "pass") ||
			strings.Contains(bad.Error, "abc") {
			t.Errorf("%+v", bad)
		}
		w.mustEnqueue(mail("slow"))
		if rec := w.await(mail("slow"), command.StatusDead); rec.Attempts != 3 || rec.ErrorCode != "transient" ||
			rec.Error != "greylisted" {
			t.Errorf("%+v", rec)
		}
		w.mustEnqueue(mail("panic"))
		if rec := w.await(mail("panic"), command.StatusDead); rec.Attempts != 3 || rec.ErrorCode != "panic" {
			t.Errorf("%+v", rec)
		}
		keys := map[string]bool{}
		for _, e := range w.called() {
			keys[e.IdempotencyKey()] = true
		}
		if len(keys) != 4 || len(w.called()) != 5+1+3+3 {
			t.Errorf("%d keys in %d calls", len(keys), len(w.called()))
		}

		dead, err := w.queue.Dead(t.Context(), "mail")
		fixture.Must(t, err == nil && len(dead) == 3 && dead[0].ID == bad.ID, "%+v, %v", dead, err)
		page, err := w.queue.List(t.Context(), command.Query{
			Status: command.StatusDead, Tenant: "acme",
			After: dead[0].ID, Limit: 1,
		})
		fixture.Check(t, err == nil && len(page) == 1 && page[0].ID == dead[1].ID, "%+v, %v", page, err)
		err = w.inTx(func(ctx context.Context, tx core.Tx) error {
			_, err := w.queue.Redrive(ctx, tx, bad.ID, "", "x")
			return err
		})
		fixture.Check(t, errors.Is(err, once.ErrInvalidRequest), "nobody: %v", err)
		healthy.Store(true)
		for _, p := range dead {
			fixture.NoError(t, w.inTx(func(ctx context.Context, _ core.Tx) error {
				redriven, err := w.queue.Redrive(ctx, nil, p.ID, "ada", "the address was corrected")
				if !redriven {
					t.Errorf("%s was not redriven", p.Key)
				}
				return err
			}))
		}
		for _, p := range dead {
			w.await(p.Effect, command.StatusCompleted)
		}
		err = w.inTx(func(ctx context.Context, tx core.Tx) error {
			redriven, err := w.queue.Redrive(ctx, tx, bad.ID, "ada", "again")
			fixture.Check(t, !redriven, "a completed effect was redriven")
			return err
		})
		fixture.NoError(t, err)
	})
}

// A process dies after the call and before the call is recorded. The effect is executed again,
// under the same key, and a late result of the dead process is refused.
func TestEffectCrashAndStaleTakeover(t *testing.T) {
	t.Parallel()
	eachEffectWorld(t, func(t *testing.T, w *effectWorld) {
		rec := w.mustEnqueue(mail("1"))
		store := w.store
		// The process that dies has claimed the effect and made the call.
		dead := command.Claim{ID: rec.ID, Owner: "dead"}
		got, err := store.Claim(t.Context(), rec.ID, dead.Owner, time.Minute)
		fixture.Must(t, err == nil && got.Fresh && got.Fence == 1, "%+v, %v", got, err)
		dead.Fence = got.Fence
		key := got.IdempotencyKey()

		worker := w.worker(sent)
		_, err = worker.PublishWithReceipt(t.Context(), w.delivery(rec, 1))
		if class, _ := core.ClassOf(err); !errors.Is(err, once.ErrInProgress) || class != core.ClassKeyUnavailable {
			t.Errorf("while the lease lasts: %v", err)
		}
		fixture.NoError(t, store.Extend(t.Context(), dead, time.Millisecond))
		w.relay(worker)
		done := w.await(mail("1"), command.StatusCompleted)
		fixture.Check(t, done.ExternalRef == "ref-1" && done.LostLeases == 1, "%+v", done)
		if calls := w.called(); len(calls) != 1 || calls[0].IdempotencyKey() != key || calls[0].ID != rec.ID {
			t.Errorf("%+v", calls)
		}
		for name, err := range map[string]error{
			"complete": store.Complete(t.Context(), dead, "of the dead"),
			"fail":     store.Fail(t.Context(), dead, command.Failure{Dead: true}),
		} {
			fixture.Check(t, errors.Is(err, once.ErrAlreadyDone), "%s: %v", name, err)
		}
		if err := store.Extend(t.Context(), dead, time.Minute); !errors.Is(err, once.ErrLeaseLost) {
			t.Errorf("extend: %v", err)
		}
		if rec := w.await(mail("1"), command.StatusCompleted); rec.ExternalRef != "ref-1" {
			t.Errorf("%+v", rec)
		}

		// Claims are also fenced while the next holder works. A holder may repeat the end that it
		// recorded.
		other := mail("2")
		other.Channel = "fax" // no relay serves this channel here
		rec = w.mustEnqueue(other)
		first, err := store.Claim(t.Context(), rec.ID, "first", time.Millisecond)
		fixture.NoError(t, err)
		var second command.Claimed
		fixture.Await(t, "the lease of the first ends", func() bool {
			second, err = store.Claim(t.Context(), rec.ID, "second", time.Minute)
			fixture.NoError(t, err)
			return second.Fresh
		})
		fixture.Check(t, second.Fence > first.Fence, "fences %d, %d", first.Fence, second.Fence)
		if err := store.Complete(t.Context(), command.Claim{ID: rec.ID, Owner: "first", Fence: first.Fence},
			"late"); !errors.Is(err, once.ErrLeaseLost) {
			t.Errorf("the first: %v", err)
		}
		for range 2 {
			fixture.NoError(t, store.Complete(t.Context(),
				command.Claim{ID: rec.ID, Owner: "second", Fence: second.Fence}, refs(2)))
		}
	})
}

// An effect whose processes keep dying becomes dead. An effect that is not in the table is never
// taken for done.
func TestEffectPoisonAndMissing(t *testing.T) {
	t.Parallel()
	eachEffectWorld(t, func(t *testing.T, w *effectWorld) {
		rec := w.mustEnqueue(mail("1"))
		worker := w.worker(sent, func(c *command.WorkerConfig) { c.MaxAttempts = 3 })
		fixture.MustExec(t, w.pool, "UPDATE side_effect_command SET lost_leases = 3")
		if receipt, err := worker.PublishWithReceipt(t.Context(), w.delivery(rec, 1)); err != nil ||
			receipt != "dead" {
			t.Errorf("%q, %v", receipt, err)
		}
		if got := w.await(mail("1"), command.StatusDead); got.ErrorCode != "lost" || len(w.called()) != 0 {
			t.Errorf("%+v", got)
		}
		fixture.MustExec(t, w.pool, "DELETE FROM side_effect_command")
		err := worker.Publish(t.Context(), w.delivery(rec, 1))
		if class, _ := core.ClassOf(err); !errors.Is(err, command.ErrNoEffect) || class != core.ClassPermanent {
			t.Errorf("missing: %v", err)
		}
		d := w.delivery(rec, 1)
		d.Topic = command.Topic("fax")
		err = worker.Publish(t.Context(), d)
		if class, _ := core.ClassOf(err); !errors.Is(err, core.ErrNoRoute) || class != core.ClassUnavailable {
			t.Errorf("no handler: %v", err)
		}
	})
}

// While a handler works, its lease is extended again and again. A handler whose lease was lost is
// told to stop, and its end is not recorded.
func TestEffectLease(t *testing.T) {
	t.Parallel()
	eachEffectWorld(t, func(t *testing.T, w *effectWorld) {
		store := w.store
		long, lost := w.mustEnqueue(mail("long")), w.mustEnqueue(mail("lost"))
		leaseUntil := func() string {
			var until any
			fixture.NoError(t, w.pool.QueryRowContext(t.Context(),
				"SELECT lease_until FROM side_effect_command WHERE idempotency_key = 'long'").Scan(&until))
			return fmt.Sprint(until)
		}
		worker := w.worker(func(ctx context.Context, e command.Effect) (string, error) {
			if e.Key == "long" {
				for seen := map[string]bool{}; len(seen) < 3; seen[leaseUntil()] = true { // extended twice
					select {
					case <-ctx.Done():
						return "", context.Cause(ctx)
					case <-time.After(20 * time.Millisecond):
					}
				}
				if got, err := store.Claim(ctx, e.ID, "thief", time.Minute); err != nil || got.Fresh {
					t.Errorf("the lease was not kept: %+v, %v", got, err)
				}
				return sent(ctx, e)
			}
			fixture.MustExec(t, w.pool, "UPDATE side_effect_command SET owner = 'thief', fence = fence + 1 WHERE "+
				"idempotency_key = 'lost'")
			select {
			case <-ctx.Done():
				return "", context.Cause(ctx)
			case <-time.After(time.Minute):
				return "", errors.New("the context did not end")
			}
		}, func(c *command.WorkerConfig) { c.Lease = 9 * time.Second })
		fixture.NoError(t, worker.Publish(t.Context(), w.delivery(long, 1)))
		if err := worker.Publish(t.Context(), w.delivery(lost, 1)); !errors.Is(err, once.ErrLeaseLost) {
			t.Errorf("lost: %v", err)
		}
		if rec := w.await(mail("lost"), command.StatusProcessing); rec.Attempts != 0 {
			t.Errorf("%+v", rec)
		}
	})
}

// lossyClaims loses the answer to the first claim of each owner.
type lossyClaims struct {
	command.Store
	asked sync.Map
}

func (s *lossyClaims) Claim(ctx context.Context, id, owner string, lease time.Duration) (command.Claimed, error) {
	got, err := s.Store.Claim(ctx, id, owner, lease)
	if _, again := s.asked.LoadOrStore(owner, true); !again && err == nil {
		return command.Claimed{}, errors.New("the answer was lost")
	}
	return got, err
}

// The store leases an effect, and its answer is lost. The worker has the lease all the same, and
// executes the effect at once. No lease counts as lost.
func TestEffectClaimWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	eachEffectWorld(t, func(t *testing.T, w *effectWorld) {
		rec := w.mustEnqueue(mail("1"))
		worker := w.worker(sent, func(c *command.WorkerConfig) { c.Store = &lossyClaims{Store: w.store} })
		fixture.NoError(t, worker.Publish(t.Context(), w.delivery(rec, 1)))
		if got := w.await(mail("1"), command.StatusCompleted); got.LostLeases != 0 || got.Attempts != 0 {
			t.Errorf("%+v", got)
		}
	})
}

func TestEffectCleanup(t *testing.T) {
	t.Parallel()
	eachEffectWorld(t, func(t *testing.T, w *effectWorld) {
		worker := w.worker(sent)
		for _, key := range []string{"1", "2", "3"} {
			fixture.NoError(t, worker.Publish(t.Context(), w.delivery(w.mustEnqueue(mail(key)), 1)))
		}
		open := w.mustEnqueue(mail("open"))
		if n, err := w.queue.Cleanup(t.Context()); err != nil || n != 0 {
			t.Errorf("too early: %d, %v", n, err)
		}
		// The age is below 0, because the clock may not have moved since the last completion.
		for _, want := range []int{2, 1, 0} {
			if n, err := w.store.Cleanup(t.Context(), -time.Minute, 2); err != nil || n != want {
				t.Errorf("%d, %v, want %d", n, err, want)
			}
		}
		if left, err := w.queue.List(t.Context(), command.Query{}); err != nil || len(left) != 1 ||
			left[0].ID != open.ID {
			t.Errorf("%+v, %v", left, err)
		}
	})
}
