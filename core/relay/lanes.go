package relay

import (
	"slices"

	"github.com/ormoutbox/ormoutbox/core"
)

// laneState is this process's view of one lane: the row that was acknowledged last, and the waiting
// items. At most one item of a lane is ready or being published.
type laneState struct {
	ackID   core.RowID
	ackSeq  int64
	hasAck  bool
	waiting []*item // ascending KeySeq
	busy    *item
}

func (l *laneState) inUse() bool { return l.busy != nil || len(l.waiting) > 0 }

// guard reports whether an item may be published now. One of three facts allows it: this process
// saw the acknowledgement of the row before it, the claim that brought it saw no open row below it,
// or the item opened its key. Each of these facts, once true, stays true. So a process that was
// paused can only repeat events, and never publishes a first copy out of order.
//
// The previous row is compared by id and by number. Numbers come back after a failover. Ids come
// back when rows are deleted on success or an insert was refused.
func (l *laneState) guard(it *item) bool {
	p := &it.place
	if it.path == core.PathHot {
		return p.opened || l.hasAck && l.ackID == p.prev && l.ackSeq == it.delivery.KeySeq-1
	}
	return p.head || l.hasAck && l.ackID == p.after
}

// lanes are the lanes that this process has seen recently. A lane in use is never forgotten,
// because a second state for it would break its order. The zero value is empty.
type lanes struct {
	known generations[core.KeyID, *laneState]
}

// find returns the state of a lane, or nil.
func (c *lanes) find(id core.KeyID) *laneState {
	l, _ := c.known.find(id)
	return l
}

func (c *lanes) get(id core.KeyID) *laneState {
	l := c.find(id)
	if l == nil {
		l = &laneState{}
		c.known.put(id, l)
	}
	return l
}

// busy reports whether an event of the lane is being published or waits.
func (c *lanes) busy(id core.KeyID) bool {
	if id.IsZero() {
		return false
	}
	l := c.find(id)
	return l != nil && l.inUse()
}

// join adds an item to the waiting items of its lane.
func (c *lanes) join(it *item) {
	l := c.get(it.lane)
	i, _ := slices.BinarySearchFunc(l.waiting, it.delivery.KeySeq, func(w *item, seq int64) int {
		if w.delivery.KeySeq <= seq { // behind the items that are there already
			return -1
		}
		return 1
	})
	l.waiting = slices.Insert(l.waiting, i, it)
}

// next takes the first item of an idle lane if its guard holds. Otherwise it returns the item that
// has to wait, if any.
func (c *lanes) next(id core.KeyID) (ready, waits *item) {
	l := c.find(id)
	if l == nil || l.busy != nil || len(l.waiting) == 0 {
		return nil, nil
	}
	it := l.waiting[0]
	if !l.guard(it) {
		return nil, it
	}
	l.waiting = slices.Delete(l.waiting, 0, 1)
	l.busy = it
	return it, nil
}

// leave takes an item out of its lane, wherever in the lane it is.
func (c *lanes) leave(it *item) {
	if it.lane.IsZero() {
		return
	}
	l := c.find(it.lane)
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

// clear takes all waiting items out of a lane.
func (c *lanes) clear(id core.KeyID) []*item {
	l := c.find(id)
	if l == nil {
		return nil
	}
	waiting := l.waiting
	l.waiting = nil
	return waiting
}

// onAck remembers the item that was acknowledged last.
func (c *lanes) onAck(it *item) {
	l := c.get(it.lane)
	l.ackID, l.ackSeq, l.hasAck = it.id, it.delivery.KeySeq, true
}
