package core_test

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
)

// Several processes and producers share keys, with faults in every method. No event is lost, no
// event is invented, and first copies come in order.
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
			HotEvents: 30, ColdEvents: 30, ClaimBatch: 10, KeyRun: 4, Workers: 4,
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
		t.Run(fmt.Sprint(lanes, " lanes"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const perLane = 12
				w := newWorld(t, core.Config{
					ClaimBatch: 10, KeyRun: 50, PollInterval: time.Minute,
					MaxPollInterval: time.Minute,
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
		})
	}
}
