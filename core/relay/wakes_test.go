package relay_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/relay"
)

// A relay whose destinations are all stopped waits for the next probe, whatever is committed
// meanwhile. It runs no busy loop, and does not ask the table for keys that it could not publish.
func TestEveryDestinationStopped(t *testing.T) {
	for _, routed := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			repo, pub := outboxtest.NewRepository(), &outboxtest.Publisher{}
			var publisher core.Publisher = pub
			if routed {
				router := core.NewRouter()
				router.Handle("a", pub)
				publisher = router
			}
			w := join(t, repo, pub, core.Config{Publisher: publisher})
			pub.Outage("a", nil)
			w.run()
			for range 20 {
				w.publish(core.Event{Type: "a", Key: "k"})
				time.Sleep(time.Second)
			}
			equal(t, w.faulty.Calls(outboxtest.MethodClaimKey), 0, "looks at a key of a stopped destination")
			pub.Restore("a")
			time.Sleep(5 * time.Second)
			w.atRest(20)
			inOrder(t, pub.Accepted())
		})
	}
}

// A key asks for a look. Then all destinations of the relay are stopped, and the look waits until
// one of them works.
func TestKeyAsksForALookWhileEverythingStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repo, pub := outboxtest.NewRepository(), &outboxtest.Publisher{}
		router := core.NewRouter()
		router.Handle("a", pub)
		w := join(t, repo, pub, core.Config{Publisher: router, Relay: relay.Config{HotEvents: 1}})
		pub.Block()
		w.run()
		w.publish(core.Event{Type: "a", Key: "in flight"})
		synctest.Wait()
		w.faulty.Hook(func(_ context.Context, m outboxtest.Method) error {
			if m == outboxtest.MethodClaimKey || m == outboxtest.MethodClaimHeads {
				time.Sleep(time.Second) // meanwhile other keys ask for a look
			}
			return nil
		})
		for _, key := range []string{"k", "l", "m"} {
			w.publish(core.Event{Type: "a", Key: key})
		}
		pub.Outage("a", nil)
		pub.Unblock()
		time.Sleep(time.Minute)
		pub.Restore("a")
		time.Sleep(time.Minute)
		w.atRest(4)
	})
}

// Drain ends when no worker is left to publish.
func TestDrainWhileEveryPublishIsStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repo, pub := outboxtest.NewRepository(), &outboxtest.Publisher{}
		p := newDeaf(pub, func(core.Delivery) bool { return false })
		w := join(t, repo, pub, core.Config{Publisher: p, Relay: relay.Config{Workers: 1}})
		for _, topic := range []string{"a", "b", "c", "d"} {
			w.publish(core.Event{Type: topic})
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		start := time.Now()
		err := w.ob.Drain(ctx)
		wantErr(t, err, core.ErrStopped, "Drain")
		if d := time.Since(start); d > 2*time.Minute {
			t.Errorf("Drain took %s", d)
		}
		close(p.wake)
	})
}

// Rows that are claimed while the last worker gets stuck are released, so that other processes can
// claim them.
func TestClaimedWhenTheLastWorkerIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repo, pub := outboxtest.NewRepository(), &outboxtest.Publisher{}
		p := newDeaf(pub, func(core.Delivery) bool { return false })
		w := join(t, repo, pub, core.Config{Publisher: p, Relay: relay.Config{Workers: 1}})
		producer := join(t, repo, pub, core.Config{})
		w.run()
		w.publish(core.Event{Type: "a"})
		w.publish(core.Event{Type: "b"})
		time.Sleep(18 * time.Second) // the first event is given up, and the second will be in about 4 s
		hold := make(chan struct{})
		w.faulty.Hook(func(_ context.Context, m outboxtest.Method) error {
			if m == outboxtest.MethodClaimUnordered {
				<-hold
			}
			return nil
		})
		producer.publish(core.Event{Type: "c"})
		time.Sleep(10 * time.Second)
		close(hold)
		time.Sleep(time.Second)
		if n := p.most.Load(); n != 2 {
			t.Fatalf("%d publishes hang, want 2", n)
		}
		producer.run()
		time.Sleep(time.Minute)
		w.atRest(3)
		close(p.wake)
		time.Sleep(time.Second)
	})
}

// A transaction may outlive the lease of its events. The relay still hears its outcome, and the
// events do not wait for the next poll.
func TestTransactionThatOutlivesItsLease(t *testing.T) {
	for _, key := range []string{"", "k"} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(
				t,
				core.Config{Relay: relay.Config{PollInterval: time.Hour, MaxPollInterval: time.Hour}},
			).run()
			tx, err := w.repo.Begin(t.Context())
			must(t, err)
			must(t, errOf(w.ob.Publish(t.Context(), tx, core.Event{Type: "a", Key: key})))
			time.Sleep(15 * time.Second)
			must(t, tx.Commit())
			time.Sleep(2 * time.Second)
			w.atRest(1)
		})
	}
}

// The mark of a suspect may have to wait for the lock of its row. The other suspects do not wait
// for it.
func TestSuspectWhoseRowIsLocked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repo, pub := outboxtest.NewRepository(), &outboxtest.Publisher{}
		first := make(chan core.RowID, 100)
		w := join(t, repo, pub,
			core.Config{Publisher: core.PublisherFunc(func(ctx context.Context, d core.Delivery) error {
				first <- d.RowID
				return pub.Publish(ctx, d)
			})})
		for range 10 {
			w.publish(core.Event{Type: "a"})
		}
		loseClaims(t, w, 4)
		pub.Block()
		w.run()
		tx, err := repo.Begin(t.Context())
		must(t, err)
		must(t, tx.LockRows(t.Context(), <-first))
		pub.Unblock()
		time.Sleep(10 * time.Second)
		equal(t, w.statuses()[outboxtest.StatusDone], 9, "suspects are done while the row of another one is locked")
		must(t, tx.Rollback())
		time.Sleep(10 * time.Second)
		w.atRest(10)
		equal(t, len(pub.Accepted()), 10, "copies of 10 events")
	})
}

// The observer is told of changes in their order, so the last change that it hears is the current
// state.
func TestObserverHearsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		last := -1
		repo, pub := outboxtest.NewRepository(), &outboxtest.Publisher{}
		p := newDeaf(pub, func(core.Delivery) bool { return false })
		w := join(t, repo, pub, core.Config{
			Publisher: p, Relay: relay.Config{Workers: 8},
			Observer: &core.Observer{Stuck: func(_ string, total int) {
				if total == 1 {
					time.Sleep(time.Second)
				}
				mu.Lock()
				defer mu.Unlock()
				last = total
			}},
		}).run()
		w.publish(core.Event{Type: "a"}, core.Event{Type: "b"})
		time.Sleep(15 * time.Second)
		close(p.wake)
		time.Sleep(5 * time.Second)
		mu.Lock()
		equal(t, last, 0, "the observer was told last of stuck publishes")
		mu.Unlock()
	})
}

// A mark that is cancelled by shutdown does not count as refused by the table.
func TestShutdownCancelsMarks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, core.Config{Relay: relay.Config{ShutdownTimeout: time.Second}})
		w.faulty.Hook(func(ctx context.Context, m outboxtest.Method) error {
			if m == outboxtest.MethodMarkDone {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		})
		w.run()
		for range 100 {
			w.publish(core.Event{Type: "a"})
		}
		time.Sleep(10 * time.Millisecond)
		noError(t, w.stop())
		if n := w.faulty.Calls(outboxtest.MethodMarkDone); n > 3 {
			t.Errorf("%d marks were tried, want one and a last try", n)
		}
	})
}

// A suspect whose mark cannot be written is tried at intervals and not in a busy loop.
func TestSuspectThatCannotBeWrittenDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, core.Config{})
		for _, key := range []string{"", "k"} {
			w.publish(core.Event{Type: "a", Key: key})
		}
		loseClaims(t, w, 4)
		w.faulty.Fail(outboxtest.Fault{
			Method: outboxtest.MethodBeginSuspect, Times: -1,
			Err: errors.New("permission denied"),
		})
		w.run()
		time.Sleep(time.Minute)
		if n := w.faulty.Calls(outboxtest.MethodBeginSuspect); n < 10 || n > 200 {
			t.Errorf("tried %d times in a minute", n)
		}
		w.faulty.Heal()
		time.Sleep(10 * time.Second)
		w.atRest(2)
		equal(t, len(w.pub.Accepted()), 2, "copies of 2 events")
	})
}

// Thousands of blocked keys are not looked at again and again. This holds while no event is
// committed, and for each event of another key.
func TestBlockedKeysAreLeftAlone(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long: make test-all runs it")
	}
	const keys = 5500 // six pages
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, core.Config{Relay: relay.Config{ColdEvents: 20_000, ClaimBatch: 5000}})
		producer := join(t, w.repo, w.pub, core.Config{})
		w.pub.Outage("bad", core.Permanent(errors.New("no")))
		for i := range keys {
			producer.publish(core.Event{Type: "bad", Key: fmt.Sprint(i)}, core.Event{Type: "bad", Key: fmt.Sprint(i)})
		}
		w.run()
		time.Sleep(2 * time.Minute)
		if got := w.statuses(); got[outboxtest.StatusDead] != keys || got[outboxtest.StatusNew] != keys {
			t.Fatalf("rows by status: %v", got)
		}

		before := w.faulty.Calls(outboxtest.MethodClaimHeads)
		time.Sleep(time.Minute)
		idle := w.faulty.Calls(outboxtest.MethodClaimHeads) - before
		if idle > 150 { // twelve polls of six pages, and some more
			t.Errorf("%d head scans in an idle minute", idle)
		}

		before = w.faulty.Calls(outboxtest.MethodClaimHeads)
		for i := range 600 { // only the poller finds these events; some have keys
			producer.publish(core.Event{Type: "good", Key: fmt.Sprint(i % 3)}, core.Event{Type: "good"})
			w.publish(core.Event{Type: "good", Key: fmt.Sprint("own", i%3)})
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(10 * time.Second)
		equal(t, w.statuses()[outboxtest.StatusDone], 1800, "events are done")
		if busy := w.faulty.Calls(outboxtest.MethodClaimHeads) - before; busy > 1200 {
			t.Errorf("%d head scans while 600 events came for other keys", busy)
		}
		inOrder(t, w.pub.Accepted())

		// No key is forgotten: redriven events are published.
		w.pub.Restore("bad")
		dead, err := w.ob.ListDead(t.Context(), core.DeadQuery{Limit: 1000})
		must(t, err)
		ids := make([]core.RowID, len(dead))
		for i, d := range dead {
			ids[i] = d.ID
		}
		if n, err := w.ob.Redrive(t.Context(), core.AdminRequest{
			IDs: ids, Actor: "me",
			Reason: "mended",
		}); n != len(ids) || err != nil {
			t.Fatal(n, err)
		}
		time.Sleep(30 * time.Second)
		if got := w.statuses()[outboxtest.StatusDone]; got != 1800+2*len(ids) {
			t.Errorf("%d events are done after %d were redriven, want %d", got, len(ids), 1800+2*len(ids))
		}
		noError(t, w.ob.Drain(t.Context()))
	})
}

// pagesOfKeys has many pages of keys without a row to claim, but says that one is due.
type pagesOfKeys struct {
	*outboxtest.Repository
	pages byte
}

func (r *pagesOfKeys) ClaimHeads(_ context.Context, _ core.ClaimRequest, after core.KeyID,
) ([]core.Claimed, core.KeyID, error) {
	if after[0]++; after[0] >= r.pages {
		after = core.KeyID{}
	}
	return nil, after, nil
}

func (r *pagesOfKeys) NextDue(ctx context.Context, req core.ClaimRequest) (time.Duration, bool, error) {
	if req.Keys > 0 {
		return 0, true, nil
	}
	return r.Repository.NextDue(ctx, req)
}

// While the keys rest, the poller does not ask again and again for a row of a key, but takes the
// others when they are due.
func TestPollerSleepsWhileKeysRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repo := &pagesOfKeys{outboxtest.NewRepository(), 50}
		w := join(t, repo.Repository, &outboxtest.Publisher{}, core.Config{
			Repository: repo, Relay: relay.Config{PollInterval: time.Minute, MaxPollInterval: time.Hour},
		}).run()
		rounds := relay.Rounds(w.ob)
		time.Sleep(time.Minute) // 12 sweeps
		if n := relay.Rounds(w.ob) - rounds; n < 500 || n > 700 {
			t.Errorf("%d rounds in 12 sweeps of 50 pages", n)
		}
		w.publish(core.Event{Type: "a", Delay: 7 * time.Second}) // a rest ends before that
		time.Sleep(7100 * time.Millisecond)
		equal(t, len(w.pub.Accepted()), 1, "events that became due while the keys rested")
	})
}
