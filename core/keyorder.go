package core

import "time"

// This file moves items through their lanes. laneState.guard has the rule that keeps them in order.

// enqueue hands a waiting item to the dispatcher: at once if it is unordered, else through its
// lane.
func (r *relay) enqueue(it *item) {
	if it.lane.IsZero() {
		r.ready(it)
		return
	}
	r.lanes.join(it)
	r.advance(it.lane)
}

// ready makes an item available to the workers.
func (r *relay) ready(it *item) {
	r.move(it, itemReady)
	r.crew.queue.push(it)
	r.crew.work.Signal()
}

// advance makes the first item of an idle lane ready if its guard holds. If the row before it has
// committed but its goroutine has not reported so yet, the lane waits for that row. Otherwise the
// lane stops.
func (r *relay) advance(id KeyID) {
	ready, waits := r.lanes.next(id)
	switch {
	case ready != nil:
		r.ready(ready)
		return
	case waits == nil:
		return
	}
	if waits.path == PathHot {
		before := r.inflight.find(waits.place.prev)
		if before != nil && before.lane == id && (before.state == itemReserved || before.state == itemWaiting) {
			return
		}
	}
	r.stopLane(id, FallbackOrder, true)
}

// laneAcked remembers the acknowledgement and advances the lane.
func (r *relay) laneAcked(it *item) {
	if it.lane.IsZero() {
		return
	}
	r.lanes.acked(it)
	if it.lease.lost { // another process may be working on the lane
		r.stopLane(it.lane, FallbackLost, true)
		return
	}
	r.advance(it.lane)
}

// stopLane gives back every item that waits in a lane. wake asks the poller to look at the lane
// once that is written.
func (r *relay) stopLane(id KeyID, reason FallbackReason, wake bool) {
	for i, it := range r.lanes.clear(id) {
		r.release(it, reason, wake && i == 0)
	}
}

// release gives an item's claim back, fenced, and takes the item out of its lane. wake asks the
// poller to look at its lane, or at the table, once that is written.
func (r *relay) release(it *item, reason FallbackReason, wake bool) {
	r.fellBack(it, reason)
	r.lanes.leave(it)
	r.move(it, itemReleasing)
	it.mark.wake = wake
	r.writer.add(it)
}

// fellBack tells the observer that an item has left the fast path.
func (r *relay) fellBack(it *item, reason FallbackReason) {
	if it.path != PathHot {
		return
	}
	topic := it.dest.topic // its delivery may not be known yet
	r.notices.add(func() { r.o.obs.FellBack(topic, reason) })
}

// askFor asks the poller to look at a lane, or at the table for an unordered row. It does nothing
// while the destination is stopped, or the events of the lane are paused: probes look for rows
// then, and the first accepted one asks for all, as the end of the pause does. For a limited
// destination it asks for a look of its own.
func (r *relay) askFor(d *destination, tenant string, lane KeyID, at time.Time) {
	switch {
	case d.open, r.dests.paused.holdEvent(d.topic, tenant):
	case d.limit != nil:
		d.limit.look.ask(at)
		r.wakes.look()
	case lane.IsZero():
		r.wakes.poll(at)
	default:
		r.wakes.lane(lane, at)
	}
}
