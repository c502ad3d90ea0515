package core

import "time"

// item is one row in the hands of this process, from the moment its slot is reserved or its claim
// returned until its mark is written or it is left to others. All fields are guarded by relay.mu,
// except that delivery does not change once the item is queued.
type item struct {
	delivery Delivery
	id       RowID
	lane     KeyID
	dest     *destination
	path     Path
	state    itemState // changed by inflight.move alone
	size     int64     // in bytes, of its slot

	lease    itemLease
	place    itemPlace
	timing   itemTiming
	mark     itemMark
	attempts int  // refusals so far
	suspect  bool // lost so often that it is suspicious: published beside no other suspect
	probe    bool // tries a stopped destination
	wake     bool // the poller looks at its lane, or the table, once its mark is written: there may be more
}

// itemLease is the claim of an item.
type itemLease struct {
	claimNo  int64
	deadline time.Time // by the local monotonic clock, never later than the database thinks
	lost     bool      // it was lost while the publish ran
}

// itemPlace says where an item stands in its lane (see laneState.guard).
type itemPlace struct {
	prev   RowID // hot: the row before it
	opened bool  // hot: it opened its key
	head   bool  // cold: the claim saw nothing open below it
	after  RowID // cold, in a run: the row before it in the same claim
}

// itemTiming says when what happened to an item.
type itemTiming struct {
	since   time.Time     // its commit, or its claim
	age     time.Duration // cold: its age when it was claimed
	started time.Time     // its publish began; zero: it has not
	stuck   bool          // its publish does not return and was given up
}

// itemMark is what is to be written of an item.
type itemMark struct {
	failure Failure
	receipt string
	tries   int // of writing it apart from the others; 0: it is written with them
}

const itemOverhead = 512 // bytes counted for an item besides its payload
