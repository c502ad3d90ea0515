package relay_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/relay"
)

// Several processes and producers share keys, with faults in every method. No event is lost, no
// event is invented, and first copies come in order.
func TestOrderUnderFaults(t *testing.T) {
	seeds := uint64(20)
	if testing.Short() {
		seeds = 5
	}
	for seed := range seeds {
		bubble(t, strconv.FormatUint(seed, 10), func(t *testing.T) { orderUnderFaults(t, seed) })
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
			Relay: relay.Config{
				HotEvents: 30, ColdEvents: 30, ClaimBatch: 10, KeyRun: 4, Workers: 4,
				Retry: relay.RetryPolicy{MaxAttempts: 1000}, MarkBatch: 5,
			},
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
		noError(t, w.stop())
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
	equal(t, pub.Overlaps(), 0, "publishes of one key overlapped")
	for _, r := range repo.Rows() {
		if r.Status != outboxtest.StatusDone {
			t.Errorf("at rest: %+v", r)
		}
	}
}

// A claim may take only some of the due events of a key. The relay fetches the rest when those are
// published, without waiting for the poll interval.
func TestLaneGoesOnAfterShortenedRun(t *testing.T) {
	for _, lanes := range []int{1, 20} { // the relay asks for a few keys one by one, and for many together
		bubble(t, fmt.Sprint(lanes, " lanes"), func(t *testing.T) {
			const perLane = 12
			w := newWorld(t, core.Config{
				Relay: relay.Config{
					ClaimBatch: 10, KeyRun: 50, PollInterval: time.Minute,
					MaxPollInterval: time.Minute,
				},
			})
			w.pub.FailFor(func(core.Delivery) error {
				time.Sleep(10 * time.Millisecond)
				return nil
			})
			for i := range lanes * perLane { // no relay runs yet: the rows are inserted for the poller
				w.publish(core.Event{Type: "t", Topic: "t", Key: strconv.Itoa(i % lanes), Payload: []byte("{}")})
			}
			start := time.Now()
			w.run()
			for len(w.pub.Accepted()) < lanes*perLane && time.Since(start) < 2*time.Minute {
				time.Sleep(10 * time.Millisecond)
			}
			if took := time.Since(start); took > 5*time.Second {
				t.Errorf("%d events of %d lanes took %s", lanes*perLane, lanes, took)
			}
			must(t, w.stop())
			inOrder(t, w.pub.Accepted())
			w.atRest(lanes * perLane)
		})
	}
}

// The database gives the lock of a key to the next transaction as soon as the earlier one has
// committed. So an event may reach its lane before the relay hears how the earlier transaction
// ended. If another process then gets the earlier event, the later event must not wait for it
// forever.
func TestLaneDoesNotWaitForWhatNeverComes(t *testing.T) {
	tests := []struct {
		name   string
		fault  outboxtest.CommitFault
		outage bool
	}{
		{name: "outcome unknown", fault: outboxtest.CommitAnswerLost},
		{name: "destination stopped", outage: true},
	}
	for _, tt := range tests {
		bubble(t, tt.name, func(t *testing.T) {
			repo, pub := outboxtest.NewRepository(), &outboxtest.Publisher{}
			down := &outboxtest.Publisher{}
			w, other := join(t, repo, pub, core.Config{Publisher: down}), join(t, repo, pub, core.Config{})
			for _, m := range []outboxtest.Method{outboxtest.MethodClaimHeads, outboxtest.MethodClaimKey} {
				w.faulty.Fail(outboxtest.Fault{Method: m, Times: -1}) // the other process always claims first
			}
			w.run()
			told := make(chan struct{})
			tx, err := repo.Begin(t.Context())
			must(t, err)
			tx.OnOutcome(func(core.Outcome) { <-told })
			must(t, errOf(w.ob.Publish(t.Context(), tx, core.Event{Type: "a", Key: "k"})))
			tx.FailCommit(tt.fault)
			ended := make(chan error, 1)
			go func() { ended <- tx.Commit() }()
			synctest.Wait() // the transaction has committed, and its callback was not called
			w.publish(core.Event{Type: "a", Key: "k"})
			if tt.outage {
				down.Outage("a", nil)
				w.publish(core.Event{Type: "a"})
				synctest.Wait()
			}
			close(told)
			if err := <-ended; tt.fault != 0 && !errors.Is(err, core.ErrCommitUnknown) {
				t.Fatalf("Commit: %v", err)
			}
			synctest.Wait()
			other.run()
			time.Sleep(time.Minute)
			for _, r := range repo.Rows() {
				if !r.KeyID.IsZero() && r.Status != outboxtest.StatusDone {
					t.Errorf("event %d of the key is %s, held by %s", r.KeySeq, r.Status, r.ClaimedBy)
				}
			}
			inOrder(t, pub.Accepted())
			noError(t, errors.Join(w.stop(), other.stop()))
		})
	}
}

// A COMMIT may get no answer although the server has committed: the network swallows it, or a pooler
// hangs. The event and those behind it must not wait for the answer.
func TestCommitWithoutAnAnswer(t *testing.T) {
	for _, deferred := range []bool{false, true} {
		for _, key := range []string{"", "k"} {
			for _, alone := range []bool{true, false} {
				bubble(t, fmt.Sprintf("deferred %t, key %q, alone %t", deferred, key, alone), func(t *testing.T) {
					var cfg core.Config
					if !alone { // the other process claims the event
						cfg = seldom
					}
					w, repo, ob := newDeferring(t, cfg)
					w.run()
					other := join(t, repo.Repository, w.pub, core.Config{})
					if !alone {
						other.run()
					}
					told := make(chan struct{})
					tx, err := repo.Begin(t.Context())
					must(t, err)
					tx.OnOutcome(func(core.Outcome) { <-told })
					must(t, errOf(ob.Publish(t.Context(), tx, core.Event{Type: "a", Key: key})))
					var kept []keptInsert
					if deferred {
						kept, repo.waiting = repo.waiting, nil
						kept[0].d.Sending(kept[0].req.ClaimNo)
						_, err := repo.Repository.Insert(t.Context(), tx, kept[0].req)
						must(t, err)
					} else {
						must(t, repo.send(t.Context(), tx, true))
					}
					tx.FailCommit(outboxtest.CommitAnswerLost)
					ended := make(chan error, 1)
					go func() { ended <- tx.Commit() }()
					synctest.Wait() // the server has committed
					for range 3 {
						must(t, repo.Transactor().RunInTx(t.Context(), func(ctx context.Context, tx core.Tx) error {
							if err := errOf(ob.Publish(ctx, tx, core.Event{Type: "a", Key: key})); err != nil {
								return err
							}
							return repo.send(ctx, tx, true)
						}))
					}
					time.Sleep(2 * time.Minute)
					for _, r := range repo.Rows() {
						if r.Status != outboxtest.StatusDone {
							t.Errorf("event %d is %s, held by %s", r.KeySeq, r.Status, r.ClaimedBy)
						}
					}
					if deferred {
						kept[0].d.Done(nil, core.ErrCommitUnknown)
					}
					close(told)
					<-ended
					time.Sleep(2 * time.Minute)
					if key != "" {
						inOrder(t, w.pub.Accepted())
					}
					equal(t, len(w.pub.Accepted()), 4, "copies of 4 events")
					noError(t, w.stop())
					if other.stop != nil {
						noError(t, other.stop())
					}
				})
			}
		}
	}
}

// A refusal counts once, even if the relay has to write it more than once.
func TestRefusalWhoseAnswerWasLostCountsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, core.Config{})
		w.pub.FailNext(1, errors.New("refused"))
		w.faulty.Fail(outboxtest.Fault{Method: outboxtest.MethodMarkFailed, After: true, Times: 3})
		w.run()
		w.publish(core.Event{Type: "a"})
		time.Sleep(time.Minute)
		w.atRest(1)
		equal(t, w.repo.Rows()[0].Attempts, 1, "attempts after one refusal")
	})
}

// After a full claim of one row without a key, the next poll asks for no key.
func TestUnorderedRowsAskForNoLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, core.Config{Relay: relay.Config{KeyRun: 1}})
		producer := join(t, w.repo, w.pub, core.Config{})
		producer.publish(core.Event{Type: "a"}, core.Event{Type: "a"})
		must(t, w.ob.Drain(context.Background()))
		w.atRest(2)
		equal(t, w.faulty.Calls(outboxtest.MethodClaimKey), 0, "looks at keys")
	})
}
