package relay

import (
	"slices"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

// reservation has the items of one Publish.
type reservation struct {
	r     *engine
	rows  []core.NewRow
	items []*item // of the rows, nil for a row that does not go hot; or nil
	one   [1]*item
	start time.Time
}

// reserve takes a slot of the fast path for every row that may go hot, and enters the row in the
// tracker. It is called before the insert: a row is leased to this process only if this process has
// room for it. When a row goes cold, all later rows of its lane go cold too.
func (r *engine) reserve(rows []core.NewRow, claimNo int64) *reservation {
	res := &reservation{r: r, rows: rows, start: time.Now()}
	r.do(func(s *state) { res.items = s.takeSlots(rows, claimNo, res.one[:0]) })
	return res
}

// takeSlots returns the items of the rows that go hot, in room if they fit.
func (s *state) takeSlots(rows []core.NewRow, claimNo int64, room []*item) []*item {
	if s.phase >= phaseClosing || s.crew.noneLeft() || !s.operators.known() {
		return nil
	}
	var items []*item
	var cold map[core.KeyID]bool
	for i := range rows {
		row := &rows[i]
		if row.ByLog || !s.topics.relays(row.Event.Topic) || row.Event.Delay > 0 || cold[row.KeyID] {
			continue
		}
		dest := s.dests.get(row.Event.Topic)
		now := time.Now()
		if s.dests.closedHot(dest, row.Event.TenantID, now) {
			continue
		}
		size := int64(len(row.Event.Payload)) + itemOverhead
		if dest.full(now) {
			cold = keepCold(cold, row.KeyID)
			continue
		}
		if s.inflight.hot.events >= s.cfg.HotEvents || s.inflight.hot.bytes+size > s.cfg.HotBytes ||
			s.inflight.find(row.ID) != nil {
			topic := row.Event.Topic
			s.effects.Call(func() { s.obs.FellBack(topic, core.FallbackFull) })
			cold = keepCold(cold, row.KeyID)
			continue
		}
		if items == nil {
			items = slices.Grow(room, len(rows))[:len(rows)]
		}
		it := &item{
			id: row.ID, lane: row.KeyID, tenant: row.Event.TenantID, dest: dest, path: core.PathHot, size: size,
			lease: itemLease{claimNo: claimNo, deadline: time.Now().Add(s.cfg.HotLease)},
		}
		row.Hot = true
		items[i] = it
		s.move(it, itemReserved)
	}
	return items
}

// keepCold notes that the later rows of a lane must go cold.
func keepCold(cold map[core.KeyID]bool, lane core.KeyID) map[core.KeyID]bool {
	if lane.IsZero() {
		return cold
	}
	if cold == nil {
		cold = map[core.KeyID]bool{}
	}
	cold[lane] = true
	return cold
}

// reserved calls fn for each item that is still reserved.
func (v *reservation) reserved(fn func(s *state, i int, it *item)) {
	if v.items == nil {
		return
	}
	v.r.do(func(s *state) {
		for i, it := range v.items {
			if it != nil && it.state == itemReserved {
				fn(s, i, it)
			}
		}
	})
}

// Cancel implements Reservation.
func (v *reservation) Cancel() { v.reserved(func(s *state, _ int, it *item) { s.forget(it) }) }

// Deferred implements Reservation.
func (v *reservation) Deferred() {
	end := time.Now().Add(noLease)
	v.reserved(func(_ *state, _ int, it *item) { it.lease.deadline = end })
}

// noLease is longer than any transaction.
const noLease = 100 * 365 * 24 * time.Hour

// Sending implements Reservation. Rows that wait together share one claim.
func (v *reservation) Sending(claimNo int64) {
	v.start = time.Now()
	v.reserved(func(_ *state, _ int, it *item) { it.lease.claimNo, it.lease.deadline = claimNo, v.deadline() })
}

// deadline is when the leases of the rows end, as far as this process may count on them.
func (v *reservation) deadline() time.Time { return v.start.Add(v.r.cfg.HotLease) }

// Inserted implements Reservation. Rows whose places are not known are leased until the deadline, and
// the poller finds them then.
func (v *reservation) Inserted(places []core.Inserted) {
	known := len(places) == len(v.rows)
	v.reserved(func(s *state, i int, it *item) {
		it.lease.deadline = v.deadline()
		if !known {
			s.fellBack(it, core.FallbackUnknown)
			s.forget(it)
			return
		}
		it.delivery = core.Delivery{Event: v.rows[i].Event, RowID: it.id, KeySeq: places[i].KeySeq, Attempt: 1}
		it.place.prev, it.place.opened = places[i].Prev, places[i].Opened
	})
}

// Ended implements Reservation.
func (v *reservation) Ended(out core.Outcome) {
	v.r.do(func(s *state) { s.transactionEnded(v.items, v.rows, out) })
}

// unreserved is the Reservation of rows that are written before Run or Drain is called. It may be
// called before their commit, and its first poll would miss them.
type unreserved struct {
	relay *relay
	rows  []core.NewRow
}

func (unreserved) Cancel()                  {}
func (unreserved) Deferred()                {}
func (unreserved) Sending(int64)            {}
func (unreserved) Inserted([]core.Inserted) {}

func (u unreserved) Ended(out core.Outcome) {
	if r := u.relay.engine.Load(); r != nil {
		r.do(func(s *state) { s.transactionEnded(nil, u.rows, out) })
	} else if out == core.Committed && u.relay.ob.Publisher != nil &&
		slices.ContainsFunc(u.rows, func(row core.NewRow) bool { return !row.ByLog }) {
		u.relay.unrelayed.committed(&u.relay.ob)
	}
}

// transactionEnded is called at the end of the transaction. After a known commit it hands the
// events to the dispatcher without a query. It never blocks. When the outcome is unknown it leaves
// the events to the poller.
func (s *state) transactionEnded(items []*item, rows []core.NewRow, out core.Outcome) {
	if s.phase == phaseClosed {
		return
	}
	now := time.Now()
	for i := range rows {
		if items == nil || items[i] == nil {
			if out == core.Committed && rows[i].Event.Delay == 0 && !rows[i].ByLog {
				s.askForRow(&rows[i], now)
			}
			continue
		}
		it := items[i]
		switch {
		case it.state != itemReserved: // its lease ended before its transaction did
			if out == core.Committed {
				s.askForRow(&rows[i], later(now, it.lease.deadline.Add(s.cfg.LeaseMargin)))
			}
		case out == core.RolledBack:
			s.forget(it)
		case out == core.Unknown, it.delivery.RowID != it.id: // the second: nobody said that the row was sent
			s.giveBack(it, core.FallbackUnknown, true)
		case s.phase >= phaseStopping, s.phase >= phaseClosing && s.lanes.busy(it.lane):
			// shutting down, and too late to publish or behind another event
			s.giveBack(it, core.FallbackShutdown, false)
		case it.lease.deadline.Sub(now) < s.cfg.LeaseMargin:
			s.fellBack(it, core.FallbackLate)
			s.forget(it)
			s.askForRow(&rows[i], it.lease.deadline.Add(s.cfg.LeaseMargin))
		case s.dests.closedHot(it.dest, it.tenant, now) || s.crew.noneLeft():
			s.giveBack(it, core.FallbackStopped, false)
		default:
			if it.dest.open {
				it.startProbe()
			}
			it.timing.since = now
			s.move(it, itemWaiting)
			s.enqueue(it)
		}
	}
}

// askForRow asks the poller to look at a committed row that is not on the fast path.
func (s *state) askForRow(row *core.NewRow, at time.Time) {
	if s.topics.relays(row.Event.Topic) {
		s.askFor(s.dests.get(row.Event.Topic), row.Event.TenantID, row.KeyID, at)
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
func (s *state) giveBack(it *item, reason core.FallbackReason, wake bool) {
	s.release(it, reason, wake)
	s.advance(it.lane)
}
