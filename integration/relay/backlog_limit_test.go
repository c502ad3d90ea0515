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
// events pass only until the next count has ended. A refused event is not in the table. Producers
// go on when the next count finds the backlog gone.
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
		passed, before, refused := map[string]bool{}, 0, 0
		drained := false
		// changed is how many counts had begun when the limit was reached or the backlog was gone. The
		// next count sees that, and Publish knows its result when the one after it begins.
		var changed int64
		known := func() bool { return len(passed) >= rows && counts.begun.Load() >= changed+2 }
		produce := func(ctx context.Context, worker int) {
			for n := 0; ctx.Err() == nil; n++ {
				e := core.Event{ID: core.NewEventID(), Type: "t", Topic: "orders", Key: fmt.Sprint(worker)}
				mu.Lock()
				known := known()
				mu.Unlock()
				err := p.Tx.RunInTx(t.Context(), func(ctx context.Context, tx core.Tx) error {
					_, err := p.Outbox.Publish(ctx, tx, e)
					return err
				})
				mu.Lock()
				switch full, isFull := errors.AsType[*core.BacklogFullError](err); {
				case err == nil:
					if passed[e.ID] = true; len(passed) == rows {
						changed = counts.begun.Load()
					}
					if known && !drained {
						t.Error("an event passed after a count had found the limit reached")
					}
				case !isFull || !errors.Is(err, core.ErrBacklogFull):
					t.Errorf("publish: %v", err)
				case full.Backlog.Pending < rows || full.Limit.Rows != rows:
					t.Errorf("refused with %+v", full)
				case known && drained && len(passed) == before:
					t.Error("an event was refused after a count had found the backlog gone")
				case known:
					refused++
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
		run(locked(func() bool { return refused >= producers }))
		t.Logf("%d events passed, %d over the limit", len(passed), len(passed)-rows)
		if n := len(p.Rows()); n != len(passed) {
			t.Errorf("%d events passed, and %d are in the table", len(passed), n)
		}

		fixture.NoError(t, p.Outbox.Drain(t.Context()))
		before, drained, changed = len(passed), true, counts.begun.Load()
		run(locked(func() bool { return len(passed) > before }))
		fixture.NoError(t, p.Outbox.Drain(t.Context()))
		var want []string
		for id := range passed {
			want = append(want, id)
		}
		p.OnceEach(want)
	})
}

// counted is a repository that counts how often its backlog is counted.
type counted struct {
	*sqloutbox.Repository

	begun atomic.Int64
}

// Backlog implements core.Repository. Counts do not run at the same time.
func (c *counted) Backlog(ctx context.Context, limit int) (core.Backlog, error) {
	c.begun.Add(1)
	return c.Repository.Backlog(ctx, limit)
}
