package relay_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/longtest"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// 32 producers reach BacklogLimit.Rows while nothing is published. After the limit was reached,
// events pass only until the next count. A refused event is not in the table. Producers go on once
// the backlog is gone.
func TestBacklogLimitUnderLoad(t *testing.T) {
	longtest.Mark(t)
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		const (
			producers = 32
			rows      = 100
		)
		p := fixture.NewProcess(t, db, core.Config{})
		counts := &counted{Repository: p.Repository}
		p.NewOutbox(core.Config{
			Repository: counts, BacklogLimit: core.BacklogLimit{Rows: rows}, Logger: slog.New(slog.DiscardHandler),
		})
		var mu sync.Mutex
		var until int64                      // the number of counts that ends the first part
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
					refused, until = now, counts.n.Load()+1 // one more count
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
			fixture.AwaitIn(t, 3*time.Minute, "the producers are far enough", until)
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
		run(locked(func() bool { return !refused.IsZero() && counts.n.Load() >= until }))
		over := len(passed) - rows
		t.Logf("%d events passed, the last one %s after the limit; %d were over it", len(passed), last.Sub(reached),
			over)
		if d := last.Sub(reached); d > counts.between() || over <= 0 {
			t.Errorf("events passed for %s after the limit was reached, %d of them", d, over)
		}
		if n := len(p.Rows()); n != len(passed) {
			t.Errorf("%d events passed, and %d are in the table", len(passed), n)
		}

		fixture.NoError(t, p.Outbox.Drain(t.Context()))
		before, start := len(passed), time.Now()
		run(locked(func() bool { return len(passed) > before }))
		if took := time.Since(start); took > counts.between() {
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

// counted is a repository that measures how long its backlog is counted.
type counted struct {
	*sqloutbox.Repository

	n       atomic.Int64 // counts that have ended
	longest atomic.Int64 // in ns
}

// Backlog implements core.Repository. Counts do not run at the same time.
func (c *counted) Backlog(ctx context.Context, limit int) (core.Backlog, error) {
	start := time.Now()
	defer func() {
		c.longest.Store(max(c.longest.Load(), int64(time.Since(start))))
		c.n.Add(1)
	}()
	return c.Repository.Backlog(ctx, limit)
}

// between is the longest time from one count to the end of the next, with an allowance for a loaded
// machine. The pause is 5 s, or 20 times as long as a count.
func (c *counted) between() time.Duration {
	longest := time.Duration(c.longest.Load())
	return max(5*time.Second, 20*longest) + longest + 5*time.Second
}
