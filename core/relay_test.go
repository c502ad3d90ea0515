package core_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
)

// world is one process with an outbox on a table in memory.
type world struct {
	t      *testing.T
	repo   *outboxtest.Repository
	faulty *outboxtest.FaultyRepository
	pub    *outboxtest.Publisher
	ob     *core.Outbox
	stop   func() error
	hot    atomic.Int64
	cold   atomic.Int64
	drops  sync.Map
}

func newWorld(t *testing.T, cfg core.Config) *world {
	t.Helper()
	return join(t, outboxtest.NewRepository(), &outboxtest.Publisher{}, cfg)
}

// join adds a process to a table and a destination.
func join(t *testing.T, repo *outboxtest.Repository, pub *outboxtest.Publisher, cfg core.Config) *world {
	t.Helper()
	w := &world{t: t, repo: repo, pub: pub, faulty: outboxtest.NewFaultyRepository(repo)}
	cfg.Repository = w.faulty
	if cfg.Publisher == nil {
		cfg.Publisher = pub
	}
	cfg.Observer = core.TeeObserver(cfg.Observer, &core.Observer{
		Published: func(i core.PublishInfo) {
			if i.Path == core.PathHot {
				w.hot.Add(1)
			} else {
				w.cold.Add(1)
			}
		},
		Dropped: func(_ string, reason core.DropReason) {
			n, _ := w.drops.LoadOrStore(reason, new(atomic.Int64))
			n.(*atomic.Int64).Add(1)
		},
	})
	ob, err := core.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	w.ob = ob
	return w
}

func (w *world) dropped(reason core.DropReason) int64 {
	n, ok := w.drops.Load(reason)
	if !ok {
		return 0
	}
	return n.(*atomic.Int64).Load()
}

// run starts the relay; stop ends it and waits.
func (w *world) run() {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.ob.Run(ctx) }()
	synctest.Wait()
	w.stop = func() error { cancel(); return <-done }
}

func (w *world) publish(events ...core.Event) []string {
	w.t.Helper()
	var ids []string
	err := w.repo.Transactor().RunInTx(context.Background(), func(ctx context.Context, tx core.Tx) (err error) {
		ids, err = w.ob.Publish(ctx, tx, events...)
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return ids
}

func (w *world) statuses() map[outboxtest.Status]int {
	m := map[outboxtest.Status]int{}
	for _, r := range w.repo.Rows() {
		m[r.Status]++
	}
	return m
}

// atRest fails the test unless n rows are DONE and nothing else is there.
func (w *world) atRest(n int) {
	w.t.Helper()
	if got := w.statuses(); got[outboxtest.StatusDone] != n || len(w.repo.Rows()) != n {
		w.t.Fatalf("rows by status: %v, want %d done", got, n)
	}
}

func ids(ds []core.Delivery) []string {
	var out []string
	for _, d := range ds {
		out = append(out, d.ID)
	}
	return out
}

// inOrder fails the test unless the first copies of each key came in ascending sequence.
func inOrder(t *testing.T, ds []core.Delivery) {
	t.Helper()
	last, seen := map[string]int64{}, map[string]bool{}
	for _, d := range ds {
		if d.KeySeq == 0 || seen[d.ID] {
			continue
		}
		seen[d.ID] = true
		key := d.Topic + "\x00" + d.TenantID + "\x00" + d.Key
		if d.KeySeq <= last[key] {
			t.Errorf("key %q: first copy of %d came after %d", d.Key, d.KeySeq, last[key])
		}
		last[key] = d.KeySeq
	}
}

func TestFastPath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, core.Config{})
		w.run()
		start := time.Now()
		var want []string
		for i := range 50 {
			want = append(want, w.publish(core.Event{Type: "a", Key: "k", Data: i})...)
			want = append(want, w.publish(core.Event{Type: "a", Data: i})...)
		}
		synctest.Wait()
		if d := time.Since(start); d != 0 {
			t.Errorf("published %s after the commit", d)
		}
		got := w.pub.Accepted()
		if a, b := slices.Sorted(slices.Values(ids(got))), slices.Sorted(slices.Values(want)); !slices.Equal(a, b) {
			t.Fatalf("published %d events, want %d", len(a), len(b))
		}
		inOrder(t, got)
		time.Sleep(time.Second)
		w.atRest(100)
		if w.cold.Load() != 0 {
			t.Errorf("%d events came through the poller", w.cold.Load())
		}
		if err := w.stop(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestRollbackPublishesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, core.Config{HotEvents: 1})
		w.run()
		boom := errors.New("boom")
		for range 5 { // more than there are slots: each must be free again
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
		if w.dropped(core.DropRolledBack) != 5 {
			t.Errorf("%d dropped as rolled back, want 5", w.dropped(core.DropRolledBack))
		}
		w.stop()
	})
}

func TestSavepointRolledBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, core.Config{})
		w.run()
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
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := ids(w.pub.Accepted()); !slices.Equal(got, kept) {
			t.Fatalf("published %v, want %v", got, kept)
		}
		if w.hot.Load() != 2 {
			t.Errorf("%d hot, want 2", w.hot.Load())
		}
		w.stop()
	})
}

func TestOverflowGoesThroughThePoller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, core.Config{HotEvents: 2, ColdEvents: 10, ClaimBatch: 10})
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
		if n := len(w.pub.Accepted()); n != 200 {
			t.Errorf("%d copies of 200 events", n)
		}
		if w.dropped(core.DropFull) == 0 || w.cold.Load() == 0 {
			t.Error("nothing overflowed: the test tests nothing")
		}
		w.stop()
	})
}

func TestOutcomeUnknown(t *testing.T) {
	for _, fault := range []outboxtest.CommitFault{outboxtest.CommitAnswerLost, outboxtest.CommitNotSent} {
		t.Run(fmt.Sprint(fault), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, core.Config{})
				w.run()
				tx, err := w.repo.Begin(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if _, err := w.ob.Publish(t.Context(), tx, core.Event{Type: "a", Key: "k"}); err != nil {
					t.Fatal(err)
				}
				tx.FailCommit(fault)
				if err := tx.Commit(); !errors.Is(err, core.ErrCommitUnknown) {
					t.Fatalf("Commit: %v, want ErrCommitUnknown", err)
				}
				time.Sleep(time.Minute)
				want := len(w.repo.Rows()) // 1 or 0
				if got := len(w.pub.Accepted()); got != want || w.hot.Load() != 0 {
					t.Fatalf("%d rows committed, %d published, %d of them hot", want, got, w.hot.Load())
				}
				w.stop()
			})
		})
	}
}

func TestRetryThenDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, core.Config{Retry: core.RetryPolicy{MaxAttempts: 4}})
		w.run()
		w.pub.FailFor(func(d core.Delivery) error {
			if d.Key == "poison" && d.AggregateVersion == 1 {
				return errors.New("refused, password=hunter2")
			}
			return nil
		})
		for v := range 3 {
			w.publish(core.Event{Type: "a", Key: "poison", AggregateVersion: int64(v + 1)}, core.Event{Type: "a", Key: fmt.Sprint(v)})
		}
		time.Sleep(5 * time.Minute)
		if got := w.statuses(); got[outboxtest.StatusDead] != 1 || got[outboxtest.StatusDone] != 3 || got[outboxtest.StatusNew] != 2 {
			t.Fatalf("rows by status: %v", got)
		}
		dead, err := w.ob.ListDead(t.Context(), core.DeadQuery{})
		if err != nil || len(dead) != 1 || dead[0].Attempts != 4 || dead[0].ErrorCode != "transient" || dead[0].Error != "refused, password=***" {
			t.Fatalf("ListDead: %+v, %v", dead, err)
		}
		backlog, err := w.ob.Backlog(t.Context())
		if err != nil || backlog.Dead != 1 || backlog.BlockedKeys != 1 || backlog.Pending != 2 {
			t.Fatalf("Backlog: %+v, %v", backlog, err)
		}

		// A person mends the cause and redrives: the lane goes on in its order.
		w.pub.FailFor(nil)
		n, err := w.ob.Redrive(t.Context(), core.AdminRequest{IDs: []core.RowID{dead[0].ID}, Actor: "me", Reason: "mended"})
		if err != nil || n != 1 {
			t.Fatalf("Redrive: %d, %v", n, err)
		}
		time.Sleep(10 * time.Second)
		w.atRest(6)
		inOrder(t, w.pub.Accepted())
		w.stop()
	})
}

func TestSkipDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, core.Config{DeadPolicy: core.SkipDead})
		w.run()
		w.pub.FailNext(1, core.Permanent(errors.New("no")))
		first := w.publish(core.Event{Type: "a", Key: "k"})
		synctest.Wait()
		w.publish(core.Event{Type: "a", Key: "k"})
		time.Sleep(10 * time.Second)
		if n := len(w.pub.Accepted()); n != 1 {
			t.Fatalf("%d published behind the dead event, want 1", n)
		}
		dead, _ := w.ob.ListDead(t.Context(), core.DeadQuery{})
		if len(dead) != 1 {
			t.Fatalf("%d dead", len(dead))
		}
		if n, err := w.ob.Redrive(t.Context(), core.AdminRequest{IDs: []core.RowID{dead[0].ID}, Actor: "me", Reason: "mended"}); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		time.Sleep(10 * time.Second)
		got := w.pub.Accepted()
		if len(got) != 2 || got[1].ID != first[0] || got[1].KeySeq <= got[0].KeySeq {
			t.Fatalf("published %v", got)
		}
		w.stop()
	})
}

func TestDiscardUnblocksLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, core.Config{})
		w.run()
		w.pub.FailNext(1, core.Permanent(errors.New("no")))
		w.publish(core.Event{Type: "a", Key: "k"})
		w.publish(core.Event{Type: "a", Key: "k"})
		time.Sleep(10 * time.Second)
		dead, _ := w.ob.ListDead(t.Context(), core.DeadQuery{})
		for _, bad := range []core.AdminRequest{{}, {IDs: []core.RowID{{}}}, {IDs: []core.RowID{dead[0].ID}, Actor: "me"}} {
			if _, err := w.ob.Discard(t.Context(), bad); !errors.Is(err, core.ErrInvalidRequest) {
				t.Errorf("Discard(%+v): %v, want ErrInvalidRequest", bad, err)
			}
		}
		if n, err := w.ob.Discard(t.Context(), core.AdminRequest{IDs: []core.RowID{dead[0].ID}, Actor: "me", Reason: "obsolete"}); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		time.Sleep(10 * time.Second)
		if n := len(w.pub.Accepted()); n != 1 {
			t.Fatalf("%d published, want the one behind the discarded event", n)
		}
		w.stop()
	})
}

// An outage that nobody classified must not turn a backlog into dead letters.
func TestOutageSpendsNoAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, core.Config{})
		w.pub.Outage("a", errors.New("who knows"))
		w.run()
		for i := range 300 {
			e := core.Event{Type: "a"}
			if i%2 == 0 {
				e.Key = fmt.Sprint(i % 20)
			}
			w.publish(e, core.Event{Type: "healthy", Key: "k"})
		}
		time.Sleep(time.Hour)
		attempts := 0
		for _, r := range w.repo.Rows() {
			if r.Status == outboxtest.StatusDead {
				t.Fatalf("row %s is dead", r.ID)
			}
			attempts += r.Attempts
		}
		if attempts > 4 { // what it takes to see that it is not the events
			t.Errorf("%d attempts were spent", attempts)
		}
		if n := len(w.pub.Accepted()); n != 300 {
			t.Errorf("%d events of the healthy destination went out, want 300", n)
		}
		if probes := len(w.pub.Attempts()) - 300; probes > 300 {
			t.Errorf("%d probes in an hour", probes)
		}
		w.pub.Restore("a")
		time.Sleep(2 * time.Minute)
		w.atRest(600)
		inOrder(t, w.pub.Accepted())
		w.stop()
	})
}

func TestUnavailableStopsOnlyItsDestination(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var opened, closed atomic.Int64
		w := newWorld(t, core.Config{Observer: &core.Observer{BreakerChanged: func(topic string, open bool, _ error) {
			if topic != "down" {
				t.Errorf("breaker of %q changed", topic)
			}
			if open {
				opened.Add(1)
			} else {
				closed.Add(1)
			}
		}}})
		w.pub.Outage("down", nil)
		w.run()
		for range 20 {
			w.publish(core.Event{Type: "down", Key: "k"}, core.Event{Type: "down"}, core.Event{Type: "up", Key: "k"})
		}
		time.Sleep(3 * time.Second)
		if n := len(w.pub.Accepted()); n != 20 {
			t.Fatalf("%d published while one destination is down, want 20", n)
		}
		w.pub.Restore("down")
		time.Sleep(time.Minute)
		w.atRest(60)
		for _, r := range w.repo.Rows() {
			if r.Attempts != 0 {
				t.Fatalf("an attempt was spent on an outage: %+v", r)
			}
		}
		if opened.Load() != 1 || closed.Load() != 1 {
			t.Errorf("breaker opened %d and closed %d times", opened.Load(), closed.Load())
		}
		inOrder(t, w.pub.Accepted())
		w.stop()
	})
}

// A timeout of one event is the event's fault only if its destination acknowledged others meanwhile.
func TestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, core.Config{Retry: core.RetryPolicy{MaxAttempts: 3}})
		w.pub.HangFor(func(d core.Delivery) bool { return d.AggregateID == "slow" })
		w.run()
		w.publish(core.Event{Type: "quiet", AggregateID: "slow"})
		w.publish(core.Event{Type: "busy", AggregateID: "slow"})
		for range 200 {
			w.publish(core.Event{Type: "busy"})
			time.Sleep(time.Second)
		}
		for _, r := range w.repo.Rows() {
			if r.Event.AggregateID != "slow" {
				continue
			}
			switch {
			case r.Event.Topic == "quiet" && (r.Status == outboxtest.StatusDead || r.Attempts != 0):
				t.Errorf("alone at a silent destination: %+v", r)
			case r.Event.Topic == "busy" && r.Status != outboxtest.StatusDead:
				t.Errorf("times out while others are acknowledged: %+v", r)
			}
		}
		w.stop()
	})
}

func TestPermanentAndPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, core.Config{Retry: core.RetryPolicy{MaxAttempts: 2}})
		w.pub.FailFor(func(d core.Delivery) error {
			switch d.Type {
			case "large":
				return core.Permanent(errors.New("too large"))
			case "panic":
				panic("oh no")
			}
			return nil
		})
		w.run()
		w.publish(core.Event{Type: "large"}, core.Event{Type: "panic"}, core.Event{Type: "fine"})
		time.Sleep(time.Minute)
		dead, err := w.ob.ListDead(t.Context(), core.DeadQuery{})
		if err != nil || len(dead) != 2 {
			t.Fatalf("%d dead, want 2: %v", len(dead), err)
		}
		for _, d := range dead {
			want := map[string]string{"large": "permanent", "panic": "panic"}[d.Event.Type]
			if d.ErrorCode != want {
				t.Errorf("%s: code %q, want %q", d.Event.Type, d.ErrorCode, want)
			}
		}
		w.stop()
	})
}

func TestDelayAndNextDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, core.Config{MaxPollInterval: time.Hour, PollInterval: time.Hour})
		w.run()
		start := time.Now()
		w.publish(core.Event{Type: "a", Delay: 7 * time.Second})
		err := w.ob.Drain(t.Context()) // looks, and finds nothing due
		if err != nil {
			t.Fatal(err)
		}
		if n := len(w.pub.Accepted()); n != 0 {
			t.Fatal("published before its time")
		}
		w.stop()
		w.run() // an idle poller sleeps until the row is due, not for an hour
		w.pub.Wait(t, 1)
		if d := time.Since(start); d < 7*time.Second || d > 8*time.Second {
			t.Errorf("published after %s, want 7s", d)
		}
		w.stop()
	})
}

func TestMarkFailureHoldsBackAndRepeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, core.Config{MaxUnmarked: 10, MarkBatch: 5, Workers: 4, HotEvents: 1000})
		w.faulty.Fail(outboxtest.Fault{Method: outboxtest.MethodMarkDone, Times: -1})
		w.run()
		for range 100 {
			w.publish(core.Event{Type: "a"})
		}
		time.Sleep(3 * time.Second)
		if n := len(w.pub.Accepted()); n > 10+4 {
			t.Errorf("%d events were published while nothing could be marked, want at most MaxUnmarked + Workers", n)
		}
		w.faulty.Heal()
		time.Sleep(time.Minute)
		w.atRest(100)
		if n := len(w.pub.Accepted()); n != 100 {
			t.Errorf("%d copies of 100 events", n)
		}
		w.stop()
	})
}

func TestLateCommitIsLeftToThePoller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, core.Config{})
		w.run()
		tx, _ := w.repo.Begin(t.Context())
		if _, err := w.ob.Publish(t.Context(), tx, core.Event{Type: "a", Key: "k"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(9500 * time.Millisecond) // the lease of 10 s is nearly over
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Second)
		w.atRest(1)
		if w.hot.Load() != 0 || w.dropped(core.DropLate) != 1 || len(w.pub.Accepted()) != 1 {
			t.Errorf("hot %d, late %d, copies %d", w.hot.Load(), w.dropped(core.DropLate), len(w.pub.Accepted()))
		}
		w.stop()
	})
}

func TestShutdown(t *testing.T) {
	t.Run("publishes what it holds", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, core.Config{Workers: 1})
			w.pub.Block()
			w.run()
			for range 10 {
				w.publish(core.Event{Type: "a", Key: "k"})
			}
			synctest.Wait()
			time.AfterFunc(2*time.Second, w.pub.Unblock)
			if err := w.stop(); err != nil {
				t.Fatal(err)
			}
			w.atRest(10)
		})
	})
	t.Run("gives back the rest", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, core.Config{Workers: 1, ShutdownTimeout: time.Second})
			w.pub.Block()
			w.run()
			for i := range 10 {
				w.publish(core.Event{Type: "a", Key: fmt.Sprint(i % 2)})
			}
			if err := w.stop(); err != nil {
				t.Fatal(err)
			}
			for _, r := range w.repo.Rows() {
				if !r.LeaseUntil.IsZero() || r.Attempts != 0 || r.Status != outboxtest.StatusNew {
					t.Fatalf("row was not given back: %+v", r)
				}
			}
			w.pub.Unblock()
			if err := w.ob.Drain(t.Context()); err != nil {
				t.Fatal(err)
			}
			w.atRest(10)
			inOrder(t, w.pub.Accepted())
		})
	})
	t.Run("publisher that does not listen", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			hung := make(chan struct{})
			w := newWorld(t, core.Config{ShutdownTimeout: time.Second, Publisher: core.PublisherFunc(func(context.Context, core.Delivery) error {
				<-hung
				return nil
			})})
			w.run()
			w.publish(core.Event{Type: "a"})
			if err := w.stop(); !errors.Is(err, core.ErrShutdownTimeout) {
				t.Fatalf("Run: %v, want ErrShutdownTimeout", err)
			}
			close(hung)
		})
	})
}

func TestRunAndDrainErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repo := outboxtest.NewRepository()
		silent, err := core.New(core.Config{Repository: repo})
		if err != nil {
			t.Fatal(err)
		}
		if err := silent.Run(t.Context()); !errors.Is(err, core.ErrNoPublisher) {
			t.Errorf("Run without publisher: %v", err)
		}
		if err := silent.Drain(t.Context()); !errors.Is(err, core.ErrNoPublisher) {
			t.Errorf("Drain without publisher: %v", err)
		}
		w := newWorld(t, core.Config{})
		w.run()
		if err := w.ob.Run(t.Context()); !errors.Is(err, core.ErrRunning) {
			t.Errorf("second Run: %v", err)
		}
		w.pub.Outage("a", nil)
		w.publish(core.Event{Type: "a"})
		if err := w.ob.Drain(t.Context()); !errors.Is(err, core.ErrStopped) {
			t.Errorf("Drain during an outage: %v", err)
		}
		w.stop()
	})
}

func TestDrain(t *testing.T) {
	for _, running := range []bool{false, true} {
		t.Run(fmt.Sprintf("running=%t", running), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, core.Config{LaneRun: 3, ColdEvents: 20, ClaimBatch: 10, MarkBatch: 7, MaxUnmarked: 9})
				producer := join(t, w.repo, w.pub, core.Config{})
				for i := range 500 { // inserted by a process that does not relay
					producer.publish(core.Event{Type: "a", Key: fmt.Sprint(i % 7)}, core.Event{Type: "b"})
				}
				if running {
					w.run()
				}
				if err := w.ob.Drain(t.Context()); err != nil {
					t.Fatal(err)
				}
				w.atRest(1000)
				if n := len(w.pub.Accepted()); n != 1000 {
					t.Errorf("%d copies of 1000 events", n)
				}
				inOrder(t, w.pub.Accepted())
				if running {
					w.stop()
				}
			})
		})
	}
}

func TestKillerIsPublishedAloneAndEndsDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repo := outboxtest.NewRepository()
		pub := &outboxtest.Publisher{}
		producer := join(t, repo, pub, core.Config{})
		for i := range 20 {
			producer.publish(core.Event{Type: "a", AggregateID: fmt.Sprint(i)})
		}
		killer := producer.publish(core.Event{Type: "a", AggregateID: "killer"})[0]
		alone := true
		for range 40 { // each life of a process ends when it publishes the killer
			hang := make(chan struct{})
			var inFlight atomic.Int64
			died := make(chan struct{})
			var once sync.Once
			var dead atomic.Bool
			faulty := outboxtest.NewFaultyRepository(repo)
			faulty.Hook(func(ctx context.Context, m outboxtest.Method) error {
				if dead.Load() { // a dead process writes nothing
					return errors.New("dead")
				}
				return nil
			})
			life, err := core.New(core.Config{Repository: faulty, ShutdownTimeout: time.Nanosecond, Publisher: core.PublisherFunc(func(ctx context.Context, d core.Delivery) error {
				if dead.Load() {
					return errors.New("dead")
				}
				n := inFlight.Add(1)
				defer inFlight.Add(-1)
				if d.ID == killer {
					if d.Attempt != 1 {
						t.Errorf("a crash was counted as a refusal: attempt %d", d.Attempt)
					}
					if row, _ := repo.Row(d.RowID); row.LostClaims >= 3 && n != 1 {
						alone = false
					}
					dead.Store(true)
					once.Do(func() { close(died) })
					<-hang
					return nil
				}
				time.Sleep(time.Millisecond)
				return pub.Publish(ctx, d)
			})})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() { defer close(done); _ = life.Run(ctx) }()
			select {
			case <-died:
			case <-time.After(2 * time.Minute):
			}
			cancel()
			close(hang)
			<-done
			time.Sleep(time.Minute) // leases run out
		}
		if !alone {
			t.Error("a suspect was published beside others")
		}
		byStatus := map[outboxtest.Status]int{}
		for _, r := range repo.Rows() {
			byStatus[r.Status]++
			if r.Status == outboxtest.StatusDead && r.Event.ID != killer {
				t.Errorf("an innocent event died with the killer: %+v", r)
			}
		}
		if byStatus[outboxtest.StatusDead] != 1 || byStatus[outboxtest.StatusDone] != 20 {
			t.Errorf("rows by status: %v, want the killer dead and 20 done", byStatus)
		}
	})
}

// Several processes, faults everywhere, producers on the same keys: nothing lost, nothing invented, first copies in order.
func TestOrderUnderFaults(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { orderUnderFaults(t, seed) })
		})
	}
}

func orderUnderFaults(t *testing.T, seed uint64) {
	repo, pub := outboxtest.NewRepository(), &outboxtest.Publisher{}
	rng := rand.New(rand.NewPCG(seed, 1))
	var mu sync.Mutex
	chance := func(p float64) bool {
		mu.Lock()
		defer mu.Unlock()
		return rng.Float64() < p
	}
	pub.FailFor(func(d core.Delivery) error {
		time.Sleep(time.Duration(len(d.Payload)) * 100 * time.Microsecond)
		switch {
		case chance(0.03):
			return errors.New("refused")
		case chance(0.01):
			return core.UnavailableForKey(errors.New("no leader"))
		case chance(0.002):
			return core.Unavailable(errors.New("connection reset"))
		}
		return nil
	})
	const processes, perProducer = 3, 200
	var worlds []*world
	for range processes {
		w := join(t, repo, pub, core.Config{
			HotEvents: 30, ColdEvents: 30, ClaimBatch: 10, LaneRun: 4, Workers: 4,
			Retry: core.RetryPolicy{MaxAttempts: 1000}, MarkBatch: 5,
		})
		w.faulty.Hook(func(_ context.Context, m outboxtest.Method) error {
			if m != outboxtest.MethodInsert && chance(0.02) {
				return errors.New("database hiccup")
			}
			return nil
		})
		w.run()
		worlds = append(worlds, w)
	}
	var wg sync.WaitGroup
	var committed sync.Map
	var count atomic.Int64
	for i, w := range worlds {
		wg.Go(func() {
			for n := range perProducer {
				err := repo.Transactor().RunInTx(context.Background(), func(ctx context.Context, tx core.Tx) error {
					ids, err := w.ob.Publish(ctx, tx, core.Event{
						Type: "a", Key: fmt.Sprint((n + i) % 5), Payload: make([]byte, n%7),
					}, core.Event{Type: "b"})
					if err != nil {
						return err
					}
					if chance(0.1) {
						return errors.New("business rule")
					}
					for _, id := range ids {
						committed.Store(id, true)
					}
					return nil
				})
				if err == nil {
					count.Add(2)
				}
				if chance(0.3) {
					time.Sleep(time.Millisecond)
				}
			}
		})
	}
	wg.Wait()
	time.Sleep(10 * time.Minute)
	for _, w := range worlds {
		if err := w.stop(); err != nil {
			t.Error(err)
		}
	}
	got := pub.Accepted()
	inOrder(t, got)
	seen := map[string]int{}
	for _, d := range got {
		if _, ok := committed.Load(d.ID); !ok {
			t.Fatalf("published %s, which did not commit", d.ID)
		}
		seen[d.ID]++
	}
	if int64(len(seen)) != count.Load() {
		t.Errorf("%d of %d committed events were published", len(seen), count.Load())
	}
	if pub.Overlaps() != 0 {
		t.Errorf("%d publishes of one lane overlapped", pub.Overlaps())
	}
	for _, r := range repo.Rows() {
		if r.Status != outboxtest.StatusDone {
			t.Errorf("at rest: %+v", r)
		}
	}
}
