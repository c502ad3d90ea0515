package core

import (
	"slices"

	"github.com/ormoutbox/ormoutbox/core/internal/mutant"
)

// laneState is what this process knows of one lane: what it saw acknowledged last, and what waits. At most one item of a lane
// is ready or being published.
type laneState struct {
	id      Lane
	ackID   RowID
	ackSeq  int64
	hasAck  bool
	waiting []*item // ascending KeySeq
	busy    *item
}

func (l *laneState) inUse() bool { return l.busy != nil || len(l.waiting) > 0 }

// guard reports whether it may be published now: this process saw the acknowledgement of the row before it, or the
// claim that brought it saw nothing open below it, or it opened its key. Each of these facts, once true, stays true, so a
// process that was paused can only repeat events, never bring a first copy out of order.
//
// The row before is compared by id and number: numbers come back after a failover, ids come back when rows are deleted on
// success or an insert was refused.
func (l *laneState) guard(it *item) bool {
	if it.path == PathHot {
		return mutant.Active == mutant.BlindHot || it.opened || l.hasAck && l.ackID == it.prev && l.ackSeq == it.delivery.KeySeq-1
	}
	return it.head || l.hasAck && l.ackID == it.after
}

// laneCache remembers lanes in two generations of limited size. A lane in use is never forgotten: a second state for it
// would break its order.
type laneCache struct {
	young, old map[Lane]*laneState
	limit      int // of a generation; 0: 32768
}

func (c *laneCache) find(id Lane) *laneState {
	if l := c.young[id]; l != nil {
		return l
	}
	l := c.old[id]
	if l != nil {
		c.put(l)
	}
	return l
}

// busy reports whether an event of the lane is being published or waits.
func (c *laneCache) busy(id Lane) bool {
	if id.IsZero() {
		return false
	}
	l := c.find(id)
	return l != nil && l.inUse()
}

func (c *laneCache) get(id Lane) *laneState {
	l := c.find(id)
	if l == nil {
		l = &laneState{id: id}
		c.put(l)
	}
	return l
}

func (c *laneCache) put(l *laneState) {
	limit := c.limit
	if limit == 0 {
		limit = 32 << 10
	}
	if len(c.young) >= limit {
		old := c.old
		c.old, c.young = c.young, nil
		c.young = make(map[Lane]*laneState, limit/4)
		for id, o := range old {
			if o.inUse() && c.old[id] == nil {
				c.young[id] = o
			}
		}
	}
	if c.young == nil {
		c.young = map[Lane]*laneState{}
	}
	c.young[l.id] = l
}

// enqueue hands a tracked item to the dispatcher: at once when it is unordered, else through its lane.
func (r *relay) enqueue(it *item) {
	if it.lane.IsZero() {
		r.ready(it)
		return
	}
	l := r.lanes.get(it.lane)
	it.state = itemWaiting
	i, _ := slices.BinarySearchFunc(l.waiting, it.delivery.KeySeq, func(w *item, seq int64) int {
		if w.delivery.KeySeq <= seq { // behind what is there already
			return -1
		}
		return 1
	})
	l.waiting = slices.Insert(l.waiting, i, it)
	r.advance(it.lane)
}

// advance makes the first item of an idle lane ready if its guard holds. If the row before it is on its way to this lane
// (its transaction has committed, but its goroutine has not said so yet) the lane waits for it; otherwise the lane stops.
func (r *relay) advance(id Lane) {
	l := r.lanes.find(id)
	if l == nil || l.busy != nil && mutant.Active != mutant.CrowdedLane || len(l.waiting) == 0 {
		return
	}
	it := l.waiting[0]
	if l.guard(it) || mutant.Active == mutant.CrowdedLane {
		l.waiting = slices.Delete(l.waiting, 0, 1)
		l.busy = it
		r.ready(it)
		return
	}
	if it.path == PathHot {
		if before := r.items[it.prev]; before != nil && before.lane == id && (before.state == itemReserved || before.state == itemWaiting) {
			return
		}
	}
	r.stopLane(id, DropOrder, true)
}

// stopLane gives back everything that waits in a lane. wake asks the poller to look after the lane once that is written.
func (r *relay) stopLane(id Lane, reason DropReason, wake bool) {
	l := r.lanes.find(id)
	if l == nil {
		return
	}
	waiting := l.waiting
	l.waiting = nil
	for i, it := range waiting {
		r.release(it, reason, wake && i == 0)
	}
}

// leaveLane takes an item out of its lane, wherever it is in it.
func (r *relay) leaveLane(it *item) {
	if it.lane.IsZero() {
		return
	}
	l := r.lanes.find(it.lane)
	if l == nil {
		return
	}
	if l.busy == it {
		l.busy = nil
	}
	if i := slices.Index(l.waiting, it); i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
	}
}

// release gives an item's claim back, fenced, and takes it out of its lane. wake: the poller looks after its lane or the table
// once that is written.
func (r *relay) release(it *item, reason DropReason, wake bool) {
	r.dropped(it, reason)
	r.leaveLane(it)
	it.state = itemReleasing
	it.wake = wake
	r.releasing++
	r.released = append(r.released, it)
	r.kickWriter()
}
