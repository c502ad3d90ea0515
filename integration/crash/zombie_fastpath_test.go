package crash_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/crash"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// With one process, order costs no claims. Several goroutines write to the same keys, and more than
// 95 % of the events take the fast path.
func TestFastPathShareOfOrderedEvents(t *testing.T) {
	events := 100 // of each writer
	if testing.Short() {
		events = 60
	}
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		prepareCrashDB(t, db)
		pool, err := crash.Open(db.Dialect, db.DSN)
		fixture.NoError(t, err)
		t.Cleanup(func() { _ = pool.Close() })
		repo, err := sqloutbox.New(pool, sqloutbox.Config{Dialect: db.Dialect})
		fixture.NoError(t, err)
		var mu sync.Mutex
		var records []crash.Message
		pub := core.PublisherFunc(func(_ context.Context, d core.Delivery) error {
			mu.Lock()
			defer mu.Unlock()
			records = append(records, crash.Message{From: "one", EventID: d.ID, Key: d.Key, KeySeq: d.KeySeq})
			return nil
		})
		var hot, cold atomic.Int64
		up := make(chan struct{})
		polled := sync.OnceFunc(func() { close(up) })
		ob, err := core.New(
			core.Config{Repository: repo, Publisher: pub, Relay: relay.Config{}, Observer: &core.Observer{
				Claimed: func(core.ClaimInfo) { polled() },
				Published: func(i core.PublishInfo) {
					if i.Path == core.PathHot {
						hot.Add(1)
					} else {
						cold.Add(1)
					}
				},
			}},
		)
		fixture.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		run, stop := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() { ended <- ob.Run(run) }()
		<-up // earlier events go to the poller, and for a while so do the next events of their keys

		w := &crash.Writer{
			Begin: crash.BeginSQL(pool, db.Dialect), Outbox: ob, Topic: "fast", Keys: keysPerCell,
			Ordered: true,
		}
		var wg sync.WaitGroup
		errs := make([]error, 4)
		for i := range errs {
			wg.Go(func() { errs[i] = w.Write(ctx, rand.New(rand.NewPCG(1, uint64(i))), events) })
		}
		wg.Wait()
		for _, err := range errs {
			if err != nil {
				t.Error(err)
			}
		}
		if err := untilEmpty(ctx, ob); err != nil {
			t.Fatalf("%v\n%s", err, openRows(pool))
		}
		stop()
		fixture.NoError(t, <-ended)
		v, err := judge(ctx, db.Name+": one process", db, records)
		fixture.NoError(t, err)
		if err := v.Err(); err != nil { // there is no duplicate either, because nothing failed
			t.Error(err)
		}
		share := float64(hot.Load()) / float64(hot.Load()+cold.Load())
		t.Logf("%s%.1f %% of %d ordered events left without a claim", crash.Table([]crash.Verdict{v}), 100*share,
			hot.Load()+cold.Load())
		fixture.Check(t, share > 0.95, "only %.1f %% of ordered events left without a claim", 100*share)
	})
}
