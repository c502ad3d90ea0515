package relay

import (
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
)

func laneItem(seq int64) *item {
	return &item{
		id: core.RowID{byte(seq)}, lane: core.KeyID{1}, path: core.PathHot, delivery: core.Delivery{KeySeq: seq},
		place: itemPlace{prev: core.RowID{byte(seq - 1)}},
	}
}

func TestLanes(t *testing.T) {
	var c lanes
	lane := core.KeyID{1}
	if ready, waits := c.next(lane); ready != nil || waits != nil || c.busy(lane) || len(c.clear(lane)) != 0 {
		t.Fatal("something is in an empty lane")
	}
	one, two, three := laneItem(1), laneItem(2), laneItem(3)
	one.place.opened = true
	for _, it := range []*item{three, one, two} { // goroutines report their commits in any order
		c.join(it)
	}
	if ready, _ := c.next(lane); ready != one {
		t.Fatal("the first is not ready")
	}
	if ready, waits := c.next(lane); ready != nil || waits != nil {
		t.Fatal("two of a lane at once")
	}
	c.leave(one)
	if ready, waits := c.next(lane); ready != nil || waits != two {
		t.Fatal("the second does not wait for the acknowledgement of the first")
	}
	c.onAck(one)
	if ready, _ := c.next(lane); ready != two {
		t.Fatal("the second is not ready")
	}
	if !c.busy(lane) {
		t.Fatal("the lane is not busy")
	}
	if rest := c.clear(lane); len(rest) != 1 || rest[0] != three {
		t.Fatalf("cleared %v", rest)
	}
	c.leave(two)
	if c.busy(lane) {
		t.Fatal("the lane is busy at the end")
	}
}

// After a failover, a number can come back for another event. The guard does not take that event
// for the one that was acknowledged under the number.
func TestLaneGuardComparesIDs(t *testing.T) {
	var l laneState
	it := laneItem(5)
	l.hasAck, l.ackSeq, l.ackID = true, 4, core.RowID{99}
	if l.guard(it) {
		t.Error("another event of the same number was taken for the one before")
	}
	l.ackID = it.place.prev
	if !l.guard(it) {
		t.Error("the event before it does not count as acknowledged")
	}
	l.ackSeq = 3
	if l.guard(it) {
		t.Error("the same event under another number was taken for the one before")
	}
}
