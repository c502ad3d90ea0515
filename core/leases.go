package core

import (
	"context"
	"errors"
	"slices"
	"time"
)

// renewLeases runs now and then. It renews, in one statement, the claims whose lease is half over.
// It also frees slots whose transaction outlived its lease.
func (r *relay) renewLeases() {
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
		if due := r.dueLeases(half); len(due) > 0 {
			r.renew(due)
		}
	}
}

func (r *relay) dueLeases(half time.Duration) []*item {
	now := time.Now()
	r.mu.Lock()
	defer r.unlock()
	items := r.inflight.sorted()
	for _, it := range items {
		if it.isStuck(now, r.cfg.PublishTimeout) {
			r.abandonPublish(it, now)
		}
	}
	var due []*item
	for _, it := range items {
		left := it.lease.deadline.Sub(now)
		switch it.state {
		case itemReserved:
			// the row is not visible to a renewal yet, and the end of the transaction comes too
			// late
			if left < 0 {
				due = append(due, it)
			}
		case itemWaiting, itemReady, itemPublishing:
			if left < half {
				due = append(due, it)
			}
		case itemNew, itemAcked, itemFailed, itemReleasing, itemGone, itemStates:
		}
	}
	renew := due[:0]
	for _, it := range due {
		if it.state == itemReserved {
			r.fellBack(it, FallbackLate)
			r.forget(it)
			continue
		}
		renew = append(renew, it)
	}
	return renew
}

// renew extends leases. A claim that is refused is lost. An item that was not sent yet is then
// forgotten. If it was sent, its acknowledgement still counts.
func (r *relay) renew(items []*item) {
	claims := r.claimRefs(items)
	start := time.Now()
	ctx, cancel := context.WithTimeout(r.life.writes, dbTimeout)
	held, err := r.repo().Renew(ctx, r.cfg.Node, r.cfg.ClaimLease, claims)
	cancel()
	locked, _ := errors.AsType[*LockedError](err)
	if err != nil && locked == nil || len(held) != len(claims) {
		r.cfg.Logger.Warn("outbox: cannot renew leases", "component", "outbox", "rows", len(claims), "err",
			errorText(err))
		r.life.renewFails.Store(true)
		return // tried again at the next tick; a worker checks before it publishes
	}
	if r.life.renewFails.Swap(false) {
		r.db.succeeded()
	}
	r.mu.Lock()
	defer r.unlock()
	lost := count(held, false)
	if locked != nil {
		lost -= len(locked.Rows)
	}
	r.fenced("renew", lost)
	for i, it := range items {
		switch {
		case held[i]:
			it.lease.deadline = start.Add(r.cfg.ClaimLease)
		case locked != nil && slices.Contains(locked.Rows, it.id):
			// no other process can have it either; tried again at the next tick
		case it.lease.claimNo != claims[i].ClaimNo: // this process has claimed it again meanwhile
		case it.state == itemPublishing:
			it.lease.lost = true
		case it.state == itemWaiting || it.state == itemReady:
			r.fellBack(it, FallbackLost)
			r.lanes.leave(it)
			r.forget(it)
			r.stopLane(it.lane, FallbackLost, true)
		}
	}
}

// renewToPublish renews the lease of an item and lets its publish begin.
func (r *relay) renewToPublish(it *item) bool {
	if !r.renewOne(it) {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !it.lease.mayPublish(it.role.suspect) { // it has become a suspect meanwhile, or was claimed again
		return false
	}
	it.timing.started = time.Now()
	return true
}

// renewOne renews the lease of an item that is about to be published. It reports whether the lease
// is long enough.
func (r *relay) renewOne(it *item) bool {
	r.renew([]*item{it})
	r.mu.Lock()
	defer r.mu.Unlock()
	return !it.lease.lost && time.Until(it.lease.deadline) >= r.cfg.PublishTimeout
}
