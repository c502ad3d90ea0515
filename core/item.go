package core

import "time"

// item is one row in the hands of this process, from the moment its slot is reserved or its claim returned until its outcome
// is written or it is dropped. The map of items is the in-flight tracker: it lives exactly as long as the claim.
// All fields are guarded by relay.mu, except that Delivery does not change once the item is queued.
type item struct {
	delivery Delivery
	id       RowID
	lane     Lane
	dest     *destination
	path     Path
	state    itemState
	size     int64

	claimNo  int64
	deadline time.Time // end of the lease, by the local monotonic clock, never later than the database thinks
	lost     bool      // the lease was lost while the publish ran
	started  time.Time // when its publish began; zero: it has not
	stuck    bool      // its publish does not return and was given up

	// Where it stands in its lane (see lane.go).
	prev   RowID // hot: the row before it
	opened bool  // hot: it opened its key
	head   bool  // cold: the claim saw nothing open below it
	after  RowID // cold, in a run: the row before it in the same claim
	wake   bool  // the poller looks at its lane, or the table, once its outcome is written: there may be more

	attempts int  // refusals so far
	lone     bool // lost so often that it is suspicious: published beside no other suspect
	probe    bool // tries a stopped destination
	since    time.Time
	age      time.Duration // cold: age when it was claimed

	failure Failure
	receipt string
	tries   int // of writing its outcome apart; 0: it is written with the others
}

type itemState uint8

const (
	itemReserved   itemState = iota // inserted or about to be; outcome of the transaction not known
	itemWaiting                     // in its lane, behind others
	itemReady                       // may be published
	itemPublishing                  // with a worker
	itemAcked                       // accepted by the destination; DONE not written yet
	itemFailed                      // refused; RETRY or DEAD not written yet
	itemReleasing                   // given back; release not written yet
	itemGone                        // not ours any more
)

const itemOverhead = 512 // bytes counted for an item besides its payload
