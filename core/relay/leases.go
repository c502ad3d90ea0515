package relay

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/errtext"
	ctxmark "github.com/ormoutbox/ormoutbox/core/internal/mark"
)

// renewLeases runs now and then. It renews, in one statement, the claims whose lease is half over.
// It also frees slots whose transaction outlived its lease.
func (r *engine) renewLeases() {
	defer close(r.life.renewDone)
	// A worker itself renews a lease that has less time left than one publish needs. The batch
	// comes before that.
	half := min(r.cfg.HotLease, r.cfg.ClaimLease) / 2
	tick := max(half/4, 10*time.Millisecond)
	half = max(half, r.cfg.PublishTimeout+r.cfg.LeaseMargin+tick)
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		select {
		case <-r.life.stopRenew:
			return
		case <-ticker.C:
		}
		stopped := r.life.publishes.Err() != nil
		var due []renewal
		r.do(func(s *state) {
			s.abandonStuck(stopped)
			s.crew.thin()
			due = s.dueLeases(half)
		})
		if len(due) > 0 {
			r.renew(r.life.writes, due)
		}
	}
}

// renewal is a claim whose lease is renewed. The item itself is guarded.
type renewal struct {
	it    *item
	claim core.ClaimRef
}

// abandonStuck goes on without the publishes that are stuck.
func (s *state) abandonStuck(stopped bool) {
	now := time.Now()
	for _, it := range s.inflight.sorted() {
		if it.isStuck(now, s.cfg.PublishTimeout) {
			s.abandonPublish(it, now, stopped)
		}
	}
}

// dueLeases returns the claims whose lease has less than half left, and frees the slots whose
// transaction outlived its lease.
func (s *state) dueLeases(half time.Duration) (due []renewal) {
	now := time.Now()
	for _, it := range s.inflight.sorted() {
		left := it.lease.deadline.Sub(now)
		switch it.state {
		case itemReserved:
			// the row is not visible to a renewal yet, and the end of the transaction comes too
			// late
			if left < 0 {
				s.fellBack(it, core.FallbackLate)
				s.forget(it)
			}
		case itemWaiting, itemReady, itemPublishing:
			if left < half {
				due = append(due, renewal{it, it.claimRef()})
			}
		case itemNew, itemAcked, itemFailed, itemReleasing, itemGone, itemStates:
		}
	}
	return due
}

// renew extends leases. A claim that is refused is lost. An item that was not sent yet is then
// forgotten. If it was sent, its acknowledgement still counts. It reports whether the database has
// answered.
func (r *engine) renew(ctx context.Context, due []renewal) (answered bool) {
	claims := make([]core.ClaimRef, len(due))
	for i, d := range due {
		claims[i] = d.claim
	}
	start := time.Now()
	ctx, cancel := context.WithTimeout(ctx, dbTimeout)
	held, err := r.repo().Renew(ctx, r.ob.Node, r.life.clocks.lease(r.cfg.ClaimLease, r.cfg.MaxLease), claims)
	cancel()
	locked, _ := errors.AsType[*core.LockedError](err)
	if err != nil && locked == nil || len(held) != len(claims) {
		r.ob.Logger.Warn("outbox: cannot renew leases", "rows", len(claims), "error", errtext.Of(err))
		r.life.renewFails.Store(true)
		r.doubt()
		return false // tried again at the next tick
	}
	if r.life.renewFails.Swap(false) {
		r.db.succeeded()
	}
	var others []core.RowID // locked by other transactions
	if locked != nil {
		others = locked.Rows
	}
	r.do(func(s *state) { s.renewed(due, held, others, start.Add(r.cfg.ClaimLease)) })
	return true
}

// renewed notes which claims are held until the deadline.
func (s *state) renewed(due []renewal, held []bool, others []core.RowID, deadline time.Time) {
	s.fenced("renew", count(held, false)-len(others))
	for i, d := range due {
		switch it := d.it; {
		case held[i]:
			it.lease.deadline = deadline
		case slices.Contains(others, it.id):
			// no other process can have it either; tried again at the next tick
		case it.lease.claimNo != d.claim.ClaimNo: // this process has claimed it again meanwhile
		case it.state == itemPublishing:
			it.lease.lost = true
		case it.state == itemWaiting || it.state == itemReady:
			s.fellBack(it, core.FallbackLost)
			s.lanes.leave(it)
			s.forget(it)
			s.stopLane(it.lane, core.FallbackLost, true)
		}
	}
}

// renewToPublish renews the lease of an item and lets its publish begin. After a failure the event
// must not be published: an operator may have paused it since it was taken.
func (r *engine) renewToPublish(it *item) bool {
	one := ask(r, func(*state) renewal { return renewal{it, it.claimRef()} })
	if !r.renew(ctxmark.ToPublish(r.life.writes), []renewal{one}) {
		return false
	}
	return ask(r, func(s *state) bool {
		if it.lease.lost || time.Until(it.lease.deadline) < s.cfg.PublishTimeout {
			return false
		}
		if !it.lease.mayPublish(it.role.suspect) { // it has become a suspect meanwhile, or was claimed again
			return false
		}
		it.timing.started = time.Now()
		return true
	})
}
