package relay

import (
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

// item is one row that this process holds: from the moment its slot is reserved or its claim
// returns, until its mark is written or the row is left to other processes. Outside of the state it is an
// opaque handle. Its delivery does not change once the item is queued.
type item struct {
	delivery core.Delivery
	id       core.RowID
	lane     core.KeyID
	tenant   string // known before delivery is
	dest     *destination
	path     core.Path
	state    itemState // changed only by inflight.move
	size     int64     // bytes of its slot

	lease    itemLease
	place    itemPlace
	timing   itemTiming
	mark     itemMark
	handover *handover // its publish, if an AsyncPublisher has its topic
	attempts int       // refusals so far
	role     itemRole
}

// itemRole has the special roles of an item.
type itemRole struct {
	suspect  bool // lost often enough to be suspicious: published beside no other suspect
	unproven bool // a suspect whose death does not count, see unprovenWait
	probe    bool // tries a stopped destination
	replay   bool // of low priority: it publishes a done event again, and is no probe
}

// startProbe lets the item try its stopped destination.
func (it *item) startProbe() {
	it.role.probe = true
	it.dest.probing = true
	it.dest.turn.started++
	it.dest.turn.fresh = it.path == core.PathHot
}

// probeWith lets the item try its stopped destination if that is due, and reports whether it is.
func (it *item) probeWith(now time.Time) bool {
	if !it.dest.mayProbe(now) {
		return false
	}
	it.startProbe()
	return true
}

// itemLease is the claim of an item.
type itemLease struct {
	claimNo  int64
	deadline time.Time // by the local monotonic clock, never later than the database's
	lost     bool      // the lease was lost while the publish ran
	begun    int64     // a suspect: the claim under which the beginning of its publish is written down
}

// itemPlace is the position of an item in its lane (see laneState.guard).
type itemPlace struct {
	prev   core.RowID // hot: the previous row
	opened bool       // hot: it opened its key
	head   bool       // cold: the claim saw no open row below it
	after  core.RowID // cold, in a run: the previous row of the same claim
}

// itemTiming holds the times of an item.
type itemTiming struct {
	since   time.Time     // when it was committed or claimed
	age     time.Duration // cold: its age when it was claimed
	started time.Time     // when its publish began; zero: it has not begun
	stuck   bool          // its publish does not return and was abandoned
}

// isStuck reports whether the publish of the item has been running for too long. timeout is
// Config.PublishTimeout.
func (it *item) isStuck(now time.Time, timeout time.Duration) bool {
	return it.state == itemPublishing && !it.timing.started.IsZero() && now.Sub(it.timing.started) >= 2*timeout
}

// itemMark is the mark to be written for an item.
type itemMark struct {
	failure *core.Failure
	receipt string
	tries   int // tries to write it apart from the others; 0: it is written with them
	// once it is written, the poller looks at the lane of the item, or at the table if the item is
	// unordered: there may be more
	wake bool
}

// claimRef names the claim of an item.
func (it *item) claimRef() core.ClaimRef { return core.ClaimRef{ID: it.id, ClaimNo: it.lease.claimNo} }

const itemOverhead = 512 // bytes counted for an item besides its payload
