package core

import (
	"context"
	"errors"
	"slices"
	"time"
)

// renewLeases looks once in a while for claims whose lease is half over and renews them in one
// statement, and gives up slots whose transaction outlived its lease.
func (r *relay) renewLeases() {
	defer close(r.life.renewDone)
	// A worker renews by itself what has less left than one publish needs: the batch comes before
	// that.
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
		if r.isStuck(it, now) {
			r.abandonPublish(it, now)
		}
	}
	var due []*item
	for _, it := range items {
		left := it.lease.deadline.Sub(now)
		switch it.state {
		case itemReserved:
			// the database renews nothing that it does not show; the end of the transaction comes
			// too late
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

// renew extends leases. What is refused is lost: dropped if it was not sent yet; if it was, its
// acknowledgement still counts.
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
			// nobody else can have it either; tried again at the next tick
		case it.lease.claimNo != claims[i].ClaimNo: // claimed again by this process meanwhile
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
	if it.suspect && r.queue.suspects.out != it { // it has become a suspect
		return false
	}
	it.timing.started = time.Now()
	return true
}

// renewOne renews the lease of an item that is about to be published and reports whether it is held
// long enough.
func (r *relay) renewOne(it *item) bool {
	r.renew([]*item{it})
	r.mu.Lock()
	defer r.mu.Unlock()
	return !it.lease.lost && time.Until(it.lease.deadline) >= r.cfg.PublishTimeout
}
