package relay_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// 32 producers reach BacklogLimit.Rows while nothing is published. After the limit was reached,
// events pass only until the next count. A refused event is not in the table. Producers go on once
// the backlog is gone.
func TestBacklogLimitUnderLoad(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		const (
			producers = 32
			rows      = 100
			// Backlog is counted every 5 s, and the time of a count comes on top.
			between = 5*time.Second + 5*time.Second
		)
		p := fixture.NewProcess(t, db, core.Config{
			BacklogLimit: core.BacklogLimit{Rows: rows}, Logger: slog.New(slog.DiscardHandler),
		})
		var mu sync.Mutex
		var reached, last, refused time.Time // the limit, the last event that passed, the first that did not
		passed := map[string]bool{}
		produce := func(ctx context.Context, worker int) {
			for n := 0; ctx.Err() == nil; n++ {
				e := core.Event{ID: core.NewEventID(), Type: "t", Topic: "orders", Key: fmt.Sprint(worker)}
				err := p.Tx.RunInTx(t.Context(), func(ctx context.Context, tx core.Tx) error {
					_, err := p.Outbox.Publish(ctx, tx, e)
					return err
				})
				mu.Lock()
				now := time.Now()
				switch full, isFull := errors.AsType[*core.BacklogFullError](err); {
				case err == nil:
					if passed[e.ID], last = true, now; len(passed) == rows {
						reached = now
					}
				case !isFull || !errors.Is(err, core.ErrBacklogFull):
					t.Errorf("publish: %v", err)
				case full.Backlog.Pending < rows || full.Limit.Rows != rows:
					t.Errorf("refused with %+v", full)
				case refused.IsZero():
					refused = now
				}
				mu.Unlock()
				<-time.After(20 * time.Millisecond)
			}
		}
		run := func(until func() bool) {
			t.Helper()
			ctx, cancel := context.WithCancel(t.Context())
			var all sync.WaitGroup
			for worker := range producers {
				all.Go(func() { produce(ctx, worker) })
			}
			fixture.Await(t, "the producers are far enough", until)
			cancel()
			all.Wait()
		}
		locked := func(fn func() bool) func() bool {
			return func() bool {
				mu.Lock()
				defer mu.Unlock()
				return fn()
			}
		}
		run(locked(func() bool { return !refused.IsZero() && time.Since(refused) > 6*time.Second })) // one more count
		over := len(passed) - rows
		t.Logf("%d events passed, the last one %s after the limit; %d were over it", len(passed), last.Sub(reached),
			over)
		if d := last.Sub(reached); d > between || over <= 0 {
			t.Errorf("events passed for %s after the limit was reached, %d of them", d, over)
		}
		if n := len(p.Rows()); n != len(passed) {
			t.Errorf("%d events passed, and %d are in the table", len(passed), n)
		}

		fixture.NoError(t, p.Outbox.Drain(t.Context()))
		before, start := len(passed), time.Now()
		run(locked(func() bool { return len(passed) > before }))
		if took := time.Since(start); took > between {
			t.Errorf("events passed again %s after the backlog was gone", took)
		}
		fixture.NoError(t, p.Outbox.Drain(t.Context()))
		var want []string
		for id := range passed {
			want = append(want, id)
		}
		p.OnceEach(want)
	})
}
