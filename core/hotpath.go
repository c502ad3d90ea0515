package core

import (
	"time"
)

// reserve takes a slot of the fast path for every row that may go hot, and enters the row in the
// tracker. It is called before the insert: a row is leased to this process only if this process has
// room for it. The result is nil for the other rows. When a row goes cold, all later rows of its
// lane go cold too.
func (r *relay) reserve(rows []NewRow, claimNo int64) []*item {
	r.mu.Lock()
	defer r.unlock()
	if r.life.phase >= phaseClosing || r.crew.noneLeft() {
		return nil
	}
	var items []*item
	var cold map[KeyID]bool
	for i := range rows {
		row := &rows[i]
		if row.ByLog || !r.o.topics.relays(row.Event.Topic) || row.Event.Delay > 0 || cold[row.KeyID] {
			continue
		}
		dest := r.dests.get(row.Event.Topic)
		now := time.Now()
		if r.dests.closedHot(dest, row.Event.TenantID, now) {
			continue
		}
		size := int64(len(row.Event.Payload)) + itemOverhead
		if dest.full(now) {
			cold = keepCold(cold, row.KeyID)
			continue
		}
		if r.inflight.hot.events >= r.cfg.HotEvents || r.inflight.hot.bytes+size > r.cfg.HotBytes ||
			r.inflight.find(row.ID) != nil {
			topic := row.Event.Topic
			r.notices.add(func() { r.o.obs.FellBack(topic, FallbackFull) })
			cold = keepCold(cold, row.KeyID)
			continue
		}
		if items == nil {
			items = make([]*item, len(rows))
		}
		it := &item{
			id: row.ID, lane: row.KeyID, tenant: row.Event.TenantID, dest: dest, path: PathHot, size: size,
			lease: itemLease{claimNo: claimNo, deadline: time.Now().Add(r.cfg.HotLease)},
		}
		row.Hot = true
		items[i] = it
		r.move(it, itemReserved)
	}
	return items
}

// keepCold notes that the later rows of a lane must go cold.
func keepCold(cold map[KeyID]bool, lane KeyID) map[KeyID]bool {
	if lane.IsZero() {
		return cold
	}
	if cold == nil {
		cold = map[KeyID]bool{}
	}
	cold[lane] = true
	return cold
}

// unreserve frees the slots of rows that were not inserted.
func (r *relay) unreserve(items []*item) {
	if r == nil || items == nil {
		return
	}
	r.mu.Lock()
	defer r.unlock()
	for _, it := range items {
		if it != nil && it.state == itemReserved {
			r.forget(it)
		}
	}
}

// inserted notes the places of the reserved rows in their lanes.
func (r *relay) inserted(items []*item, rows []NewRow, places []Inserted, deadline time.Time) {
	if items == nil {
		return
	}
	r.mu.Lock()
	defer r.unlock()
	for i, it := range items {
		if it == nil {
			continue
		}
		it.delivery = Delivery{Event: rows[i].Event, RowID: it.id, KeySeq: places[i].KeySeq, Attempt: 1}
		it.place.prev, it.place.opened = places[i].Prev, places[i].Opened
		it.lease.deadline = deadline
	}
}

// waits notes that the reserved rows are inserted later: their leases have not begun.
func (r *relay) waits(items []*item) {
	if items == nil {
		return
	}
	r.mu.Lock()
	defer r.unlock()
	for _, it := range items {
		if it != nil {
			it.lease.deadline = time.Now().Add(noLease)
		}
	}
}

// claimedAs notes the claim under which reserved rows are sent now: rows that wait together share
// one.
func (r *relay) claimedAs(items []*item, claimNo int64, deadline time.Time) {
	if r == nil || items == nil {
		return
	}
	r.mu.Lock()
	defer r.unlock()
	for _, it := range items {
		if it != nil && it.state == itemReserved {
			it.lease.claimNo, it.lease.deadline = claimNo, deadline
		}
	}
}

// noLease is longer than any transaction.
const noLease = 100 * 365 * 24 * time.Hour

// unplaced notes that reserved rows are in the table, and that their places are not known. They are
// leased until deadline, and the poller finds them then.
func (r *relay) unplaced(items []*item, deadline time.Time) {
	if r == nil || items == nil {
		return
	}
	r.mu.Lock()
	defer r.unlock()
	for _, it := range items {
		if it != nil && it.state == itemReserved {
			it.lease.deadline = deadline
			r.fellBack(it, FallbackUnknown)
			r.forget(it)
		}
	}
}

// transactionEnded is called at the end of the transaction. After a known commit it hands the
// events to the dispatcher without a query. It never blocks. When the outcome is unknown it leaves
// the events to the poller.
func (r *relay) transactionEnded(items []*item, rows []NewRow, out Outcome) {
	r.mu.Lock()
	defer r.unlock()
	if r.life.phase == phaseClosed {
		return
	}
	now := time.Now()
	for i := range rows {
		if items == nil || items[i] == nil {
			if out == Committed && rows[i].Event.Delay == 0 && !rows[i].ByLog {
				r.askForRow(&rows[i], now)
			}
			continue
		}
		it := items[i]
		switch {
		case it.state != itemReserved: // its lease ended before its transaction did
			if out == Committed {
				r.askForRow(&rows[i], later(now, it.lease.deadline.Add(r.cfg.LeaseMargin)))
			}
		case out == RolledBack:
			r.forget(it)
		case out == Unknown, it.delivery.RowID != it.id: // the second: nobody said that the row was sent
			r.giveBack(it, FallbackUnknown, true)
		case r.life.phase >= phaseStopping, r.life.phase >= phaseClosing && r.lanes.busy(it.lane):
			// shutting down, and too late to publish or behind another event
			r.giveBack(it, FallbackShutdown, false)
		case it.lease.deadline.Sub(now) < r.cfg.LeaseMargin:
			r.fellBack(it, FallbackLate)
			r.forget(it)
			r.askForRow(&rows[i], it.lease.deadline.Add(r.cfg.LeaseMargin))
		case r.dests.closedHot(it.dest, it.tenant, now) || r.crew.noneLeft():
			r.giveBack(it, FallbackStopped, false)
		default:
			if it.dest.open {
				it.startProbe()
			}
			it.timing.since = now
			r.move(it, itemWaiting)
			r.enqueue(it)
		}
	}
}

// askForRow asks the poller to look at a committed row that is not on the fast path.
func (r *relay) askForRow(row *NewRow, at time.Time) {
	if r.o.topics.relays(row.Event.Topic) {
		r.askFor(r.dests.get(row.Event.Topic), row.Event.TenantID, row.KeyID, at)
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// giveBack releases a reserved row that may be in the table. It re-checks the lane: events behind
// the row must no longer wait for it.
func (r *relay) giveBack(it *item, reason FallbackReason, wake bool) {
	r.release(it, reason, wake)
	r.advance(it.lane)
}
