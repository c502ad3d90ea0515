package relay

import (
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

// This file moves items through their lanes. laneState.guard has the rule that keeps them in order.

// enqueue hands a waiting item to the dispatcher: at once if it is unordered, else through its
// lane.
func (s *state) enqueue(it *item) {
	if it.lane.IsZero() {
		s.ready(it)
		return
	}
	s.lanes.join(it)
	s.advance(it.lane)
}

// ready makes an item available to the workers.
func (s *state) ready(it *item) {
	s.move(it, itemReady)
	s.crew.queue.push(it)
	s.crew.wake()
}

// advance makes the first item of an idle lane ready if its guard holds. If the row before it has
// committed but its goroutine has not reported so yet, the lane waits for that row. Otherwise the
// lane stops.
func (s *state) advance(id core.KeyID) {
	ready, waits := s.lanes.next(id)
	switch {
	case ready != nil:
		s.ready(ready)
		return
	case waits == nil:
		return
	}
	if waits.path == core.PathHot {
		before := s.inflight.find(waits.place.prev)
		if before != nil && before.lane == id && (before.state == itemReserved || before.state == itemWaiting) {
			return
		}
	}
	s.stopLane(id, core.FallbackOrder, true)
}

// laneAcked remembers the acknowledgement and advances the lane.
func (s *state) laneAcked(it *item) {
	if it.lane.IsZero() {
		return
	}
	s.lanes.onAck(it)
	if it.lease.lost { // another process may be working on the lane
		s.stopLane(it.lane, core.FallbackLost, true)
		return
	}
	s.advance(it.lane)
}

// stopLane gives back every item that waits in a lane. wake asks the poller to look at the lane
// once that is written.
func (s *state) stopLane(id core.KeyID, reason core.FallbackReason, wake bool) {
	for i, it := range s.lanes.clear(id) {
		s.release(it, reason, wake && i == 0)
	}
}

// release gives an item's claim back, fenced, and takes the item out of its lane. wake asks the
// poller to look at its lane, or at the table, once that is written.
func (s *state) release(it *item, reason core.FallbackReason, wake bool) {
	s.fellBack(it, reason)
	s.lanes.leave(it)
	s.move(it, itemReleasing)
	it.mark.wake = wake
	s.addMark(it)
}

// fellBack calls the observer's FellBack if the item was in the fast path.
func (s *state) fellBack(it *item, reason core.FallbackReason) {
	if it.path != core.PathHot {
		return
	}
	topic := it.dest.topic // its delivery may not be known yet
	s.effects.Call(func() { s.obs.FellBack(topic, reason) })
}

// askFor asks the poller to look at a lane, or at the table for an unordered row. It does nothing
// while the destination is stopped, or the events of the lane are paused: probes look for rows
// then, and the first accepted one asks for all, as the end of the pause does. For a limited
// destination it asks for a look of its own.
func (s *state) askFor(d *destination, tenant string, lane core.KeyID, at time.Time) {
	switch {
	case d.open, s.dests.paused.holdEvent(d.topic, tenant):
	case d.limit != nil:
		d.limit.look.ask(at)
		s.wakes.look()
	case lane.IsZero():
		s.wakes.poll(at)
	default:
		s.wakes.lane(lane, at)
	}
}
