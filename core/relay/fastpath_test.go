package relay_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/relay"
)

func TestFastPath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, core.Config{}).run()
		start := time.Now()
		var want []string
		for i := range 50 {
			want = append(want, w.publish(core.Event{Type: "a", Key: "k", Data: i})...)
			want = append(want, w.publish(core.Event{Type: "a", Data: i})...)
		}
		synctest.Wait()
		equal(t, time.Since(start), 0, "published after the commit")
		got := w.pub.Accepted()
		if a, b := slices.Sorted(slices.Values(ids(got))), slices.Sorted(slices.Values(want)); !slices.Equal(a, b) {
			t.Fatalf("published %d events, want %d", len(a), len(b))
		}
		inOrder(t, got)
		time.Sleep(time.Second)
		w.atRest(100)
		equal(t, w.cold.Load(), 0, "events came through the poller")
	})
}

func TestRollbackPublishesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, core.Config{Relay: relay.Config{HotEvents: 1}}).run()
		boom := errors.New("boom")
		for range 5 { // more than there are slots, so each slot must become free again
			err := w.repo.Transactor().RunInTx(t.Context(), func(ctx context.Context, tx core.Tx) error {
				if _, err := w.ob.Publish(ctx, tx, core.Event{Type: "a", Key: "k"}); err != nil {
					return err
				}
				return boom
			})
			if !errors.Is(err, boom) {
				t.Fatal(err)
			}
		}
		w.publish(core.Event{Type: "a", Key: "k"})
		synctest.Wait()
		if n := len(w.pub.Accepted()); n != 1 || w.hot.Load() != 1 {
			t.Fatalf("%d published, %d hot, want 1 and 1", n, w.hot.Load())
		}
		w.fallbacks.Range(func(reason, _ any) bool {
			t.Errorf("told that an event that never was is left to the poller: %v", reason)
			return true
		})
	})
}

func TestSavepointRolledBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, core.Config{}).run()
		var kept []string
		tr := w.repo.Transactor()
		err := tr.RunInTx(t.Context(), func(ctx context.Context, tx core.Tx) error {
			publish := func(ctx context.Context, tx core.Tx) error {
				got, err := w.ob.Publish(ctx, tx, core.Event{Type: "a", Key: "k"})
				kept = append(kept, got...)
				return err
			}
			if err := publish(ctx, tx); err != nil {
				return err
			}
			before := len(kept)
			_ = tr.RunInTx(ctx, func(ctx context.Context, tx core.Tx) error {
				if err := publish(ctx, tx); err != nil {
					return err
				}
				return errors.New("undo")
			})
			kept = kept[:before]
			return publish(ctx, tx)
		})
		must(t, err)
		synctest.Wait()
		if got := ids(w.pub.Accepted()); !slices.Equal(got, kept) {
			t.Fatalf("published %v, want %v", got, kept)
		}
		equal(t, w.hot.Load(), 2, "hot")
	})
}

func TestOverflowGoesThroughThePoller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, core.Config{Relay: relay.Config{HotEvents: 2, ColdEvents: 10, ClaimBatch: 10}})
		w.pub.Block()
		w.run()
		for i := range 100 {
			w.publish(core.Event{Type: "a", Key: fmt.Sprint(i % 3)}, core.Event{Type: "a"})
		}
		w.pub.Unblock()
		start := time.Now()
		w.pub.Wait(t, 200)
		if d := time.Since(start); d > 2*time.Second {
			t.Errorf("took %s although the poller was woken", d)
		}
		inOrder(t, w.pub.Accepted())
		time.Sleep(time.Second)
		w.atRest(200)
		equal(t, len(w.pub.Accepted()), 200, "copies of 200 events")
		if w.fellBack(core.FallbackFull) == 0 || w.cold.Load() == 0 {
			t.Error("nothing overflowed: the test tests nothing")
		}
	})
}

func TestOutcomeUnknown(t *testing.T) {
	for _, fault := range []outboxtest.CommitFault{outboxtest.CommitAnswerLost, outboxtest.CommitNotSent} {
		bubble(t, fmt.Sprint(fault), func(t *testing.T) {
			w := newWorld(t, core.Config{}).run()
			tx, err := w.repo.Begin(t.Context())
			must(t, err)
			must(t, errOf(w.ob.Publish(t.Context(), tx, core.Event{Type: "a", Key: "k"})))
			tx.FailCommit(fault)
			wantErr(t, tx.Commit(), core.ErrCommitUnknown, "Commit")
			time.Sleep(time.Minute)
			want := len(w.repo.Rows()) // 1 or 0
			if got := len(w.pub.Accepted()); got != want || w.hot.Load() != 0 {
				t.Fatalf("%d rows committed, %d published, %d of them hot", want, got, w.hot.Load())
			}
		})
	}
}

func TestDelayAndNextDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, core.Config{Relay: relay.Config{MaxPollInterval: time.Hour, PollInterval: time.Hour}}).run()
		start := time.Now()
		w.publish(core.Event{Type: "a", Delay: 7 * time.Second})
		err := w.ob.Drain(t.Context()) // the poller asks, and no event is due
		must(t, err)
		if n := len(w.pub.Accepted()); n != 0 {
			t.Fatal("published before its time")
		}
		w.stop()
		w.run() // an idle poller sleeps until the row is due, not for the poll interval
		w.pub.Wait(t, 1)
		if d := time.Since(start); d < 7*time.Second || d > 8*time.Second {
			t.Errorf("published after %s, want 7s", d)
		}
	})
}

func TestLateCommitIsLeftToThePoller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, core.Config{}).run()
		tx, _ := w.repo.Begin(t.Context())
		must(t, errOf(w.ob.Publish(t.Context(), tx, core.Event{Type: "a", Key: "k"})))
		time.Sleep(9500 * time.Millisecond) // the lease of 10 s is nearly over
		must(t, tx.Commit())
		time.Sleep(30 * time.Second)
		w.atRest(1)
		if w.hot.Load() != 0 || w.fellBack(core.FallbackLate) != 1 || len(w.pub.Accepted()) != 1 {
			t.Errorf("hot %d, late %d, copies %d", w.hot.Load(), w.fellBack(core.FallbackLate), len(w.pub.Accepted()))
		}
	})
}

// A transaction that began before Run is not on the fast path. It commits after the first poll, and
// need not wait for the next poll.
func TestCommitAfterRunBegan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, core.Config{Relay: relay.Config{PollInterval: time.Minute, MaxPollInterval: time.Minute}})
		for _, key := range []string{"", "k"} {
			err := w.repo.Transactor().RunInTx(t.Context(), func(ctx context.Context, tx core.Tx) error {
				if _, err := w.ob.Publish(ctx, tx, core.Event{Type: "t", Key: key, Payload: []byte("{}")}); err != nil {
					return err
				}
				if w.stop == nil {
					w.run()
				}
				time.Sleep(time.Second)
				return nil
			})
			must(t, err)
			time.Sleep(time.Second)
			equal(t, len(w.pub.Accepted()), 1, "key %q: events a second after the commit", key)
			must(t, w.stop())
			w = newWorld(t, core.Config{Relay: relay.Config{PollInterval: time.Minute, MaxPollInterval: time.Minute}})
		}
	})
}
