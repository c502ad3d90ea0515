package relay_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/relay"
)

// numbersSeen is a repository that notes under which numbers rows were claimed.
type numbersSeen struct {
	core.Repository
	mu     sync.Mutex
	hot    []int64 // the number of each Insert with hot rows
	claims []int64 // the number of each claim that returned rows
	twice  []string
	rows   map[string]bool
}

// saw notes that a row was claimed. The caller holds the mutex.
func (s *numbersSeen) saw(id core.RowID, number int64) {
	claim := fmt.Sprintf("row %s under number %d", id, number)
	if s.rows[claim] {
		s.twice = append(s.twice, claim)
	}
	s.rows[claim] = true
}

func (s *numbersSeen) Insert(ctx context.Context, tx core.Tx, req core.InsertRequest) ([]core.Inserted, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.ContainsFunc(req.Rows, func(r core.NewRow) bool { return r.Hot }) {
		s.hot = append(s.hot, req.ClaimNo)
	}
	for _, r := range req.Rows {
		if r.Hot {
			s.saw(r.ID, req.ClaimNo)
		}
	}
	return s.Repository.Insert(ctx, tx, req)
}

func (s *numbersSeen) claimed(number int64, rows []core.Claimed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(rows) > 0 {
		s.claims = append(s.claims, number)
	}
	for _, r := range rows {
		s.saw(r.ID, number)
	}
}

func (s *numbersSeen) ClaimUnordered(ctx context.Context, req core.ClaimRequest) ([]core.Claimed, error) {
	rows, err := s.Repository.ClaimUnordered(ctx, req)
	s.claimed(req.ClaimNo, rows)
	return rows, err
}

func (s *numbersSeen) ClaimHeads(ctx context.Context, req core.ClaimRequest, after core.KeyID,
) ([]core.Claimed, core.KeyID, error) {
	rows, next, err := s.Repository.ClaimHeads(ctx, req, after)
	s.claimed(req.ClaimNo, rows)
	return rows, next, err
}

func (s *numbersSeen) ClaimKey(ctx context.Context, req core.ClaimRequest, lane core.KeyID) ([]core.Claimed, error) {
	rows, err := s.Repository.ClaimKey(ctx, req, lane)
	s.claimed(req.ClaimNo, rows)
	return rows, err
}

// A process gives each Publish and each claim a number of its own, so that a statement under an
// earlier claim never changes a row that was claimed again, or that was deleted and published
// again.
func TestClaimNumbersAreUsedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repo := outboxtest.NewRepository()
		seen := &numbersSeen{Repository: repo, rows: map[string]bool{}}
		w := join(t, repo, &outboxtest.Publisher{}, core.Config{
			Repository: seen,
			Relay:      relay.Config{Retry: relay.RetryPolicy{BaseDelay: time.Second, MaxDelay: time.Second}},
		}).run()
		w.pub.FailNext(12, core.Transient(errors.New("try again")))
		for i := range 6 {
			w.publish(core.Event{Type: "a"}, core.Event{Type: "a", Key: fmt.Sprint(i % 2)})
			synctest.Wait()
		}
		time.Sleep(5 * time.Minute) // in the bubble: the retries
		must(t, w.stop())
		w.atRest(12)
		if len(seen.twice) > 0 {
			t.Errorf("claimed twice: %s", seen.twice)
		}
		if len(seen.hot) < 3 || len(seen.claims) < 3 {
			t.Fatalf("%d hot publishes and %d claims: too few to tell", len(seen.hot), len(seen.claims))
		}
		used := map[int64]bool{}
		for _, n := range seen.hot {
			if n <= 0 || used[n] || slices.Contains(seen.claims, n) {
				t.Errorf("number %d of a Publish has another claim: publishes %v, claims %v", n, seen.hot, seen.claims)
			}
			used[n] = true
		}
	})
}
