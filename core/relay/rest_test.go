package relay_test

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
)

// restingTable counts the calls of a relay at rest.
type restingTable struct {
	*outboxtest.Repository
	settings, looks, claims, others atomic.Int64
}

func (r *restingTable) Settings(ctx context.Context) (core.Settings, error) {
	r.settings.Add(1)
	return r.Repository.Settings(ctx)
}

func (r *restingTable) NextDue(ctx context.Context, req core.ClaimRequest) (time.Duration, bool, error) {
	r.looks.Add(1)
	return r.Repository.NextDue(ctx, req)
}

func (r *restingTable) ClaimUnordered(ctx context.Context, req core.ClaimRequest) ([]core.Claimed, error) {
	r.claims.Add(1)
	return r.Repository.ClaimUnordered(ctx, req)
}

func (r *restingTable) ClaimHeads(ctx context.Context, req core.ClaimRequest, after core.KeyID,
) ([]core.Claimed, core.KeyID, error) {
	r.claims.Add(1)
	return r.Repository.ClaimHeads(ctx, req, after)
}

func (r *restingTable) Beat(ctx context.Context, b core.Heartbeat) error {
	r.others.Add(1)
	return r.Repository.Beat(ctx, b)
}

func (r *restingTable) Cleanup(ctx context.Context, req core.CleanupRequest) (int, bool, error) {
	r.others.Add(1)
	return r.Repository.Cleanup(ctx, req)
}

func (r *restingTable) AddHistory(ctx context.Context, counts []core.HistoryCounts) (bool, error) {
	r.others.Add(1)
	return r.Repository.AddHistory(ctx, counts)
}

// A relay without events asks the database little, and has few goroutines, also after a busy time.
func TestRelayAtRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		goroutines := runtime.NumGoroutine()
		repo, pub := &restingTable{Repository: outboxtest.NewRepository()}, &outboxtest.Publisher{}
		ob, _ := runOutbox(t, core.Config{Repository: repo, Publisher: pub})
		for range 100 {
			publishTo(t, repo.Repository, ob, "a", "b", "c")
		}
		time.Sleep(time.Minute)
		equal(t, len(pub.Accepted()), 300, "accepted events")
		if n := runtime.NumGoroutine() - goroutines; n > 9 {
			t.Errorf("%d goroutines at rest, want 9: of Run, and of each of its parts", n)
		}
		counts := []*atomic.Int64{&repo.settings, &repo.looks, &repo.claims, &repo.others}
		for _, c := range counts {
			c.Store(0)
		}
		time.Sleep(time.Hour)
		for i, want := range []struct {
			what string
			most int64 // with every pause at its shortest
		}{
			{"reads of what operators have set", 2260},
			{"looks whether a row waits", 800},
			{"claims", 300},
			{"heartbeats, cleanups and notes of the history", 565},
		} {
			if n := counts[i].Load(); n > want.most || n == 0 {
				t.Errorf("%d %s in an hour, want at most %d", n, want.what, want.most)
			}
		}

		publishTo(t, repo.Repository, ob, "a")
		synctest.Wait()
		equal(t, len(pub.Accepted()), 301, "events accepted after the rest")
	})
}

// An event of another process is found as soon as before the rest, though a look takes the place of
// most polls.
func TestRestIsNoDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repo, pub := outboxtest.NewRepository(), &outboxtest.Publisher{}
		_, _ = runOutbox(t, core.Config{Repository: repo, Publisher: pub})
		other := newOutbox(t, core.Config{Repository: repo})
		for i := range 100 {
			time.Sleep(time.Duration(i) * time.Second)
			publishTo(t, repo, other, "a")
			time.Sleep(6 * time.Second) // MaxPollInterval and its jitter
			synctest.Wait()
			equal(t, len(pub.Accepted()), i+1, "accepted events")
		}
	})
}
