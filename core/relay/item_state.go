package relay

import (
	"fmt"
)

// itemState is the state of an item: see itemTransitions.
type itemState uint8

const (
	itemNew        itemState = iota // not tracked yet
	itemReserved                    // inserted or about to be; its transaction is open
	itemWaiting                     // in its lane, behind other items
	itemReady                       // may be published
	itemPublishing                  // a worker publishes it
	itemAcked                       // accepted by the destination; DONE is not written yet
	itemFailed                      // refused; RETRY or DEAD is not written yet
	itemReleasing                   // given back; the release is not written yet
	itemGone                        // this process holds it no more
	itemStates                      // the number of states
)

func (s itemState) String() string {
	return [itemStates]string{
		"new", "reserved", "waiting", "ready", "publishing", "acked", "failed", "releasing",
		"gone",
	}[s]
}

// itemTransition is an allowed change of state.
type itemTransition struct {
	from, to itemState
	when     string
}

// itemTransitions are all allowed changes of state. The table in docs/how-it-works.md has the states
// that may follow each state; a test compares the two.
var itemTransitions = []itemTransition{
	{itemNew, itemReserved, "`Publish` takes a slot of the fast path, before it inserts the row"},
	{itemNew, itemWaiting, "the poller has claimed the row"},
	{itemNew, itemAcked, "a publish that was given up has succeeded after all"},
	{itemReserved, itemWaiting, "the transaction has committed"},
	{
		itemReserved, itemReleasing,
		"the outcome of its transaction is unknown, the destination is stopped, or the relay ends",
	},
	{
		itemReserved, itemGone,
		"it was rolled back, nothing was inserted, the lease is over or nearly so, or a claim has returned the row",
	},
	{itemWaiting, itemReady, "it is unordered, or the first of its key and the event before it is known to be out"},
	{itemWaiting, itemFailed, "it is not published: the row cannot be read, its holders died again and again, " +
		"or it is a replayed event without room"},
	{itemWaiting, itemReleasing, "its key stops, its destination is stopped, no worker is left, or the relay ends"},
	{itemWaiting, itemGone, "its lease was lost"},
	{itemReady, itemPublishing, "a worker takes it"},
	{itemReady, itemReleasing, "its destination is stopped, no worker is left, or the relay ends"},
	{itemReady, itemGone, "its lease was lost"},
	{itemPublishing, itemAcked, "the destination accepted the event"},
	{itemPublishing, itemFailed, "the destination refused the event, the publish is stuck, a suspect could not " +
		"be written down, or the relay ends while a suspect is tried alone"},
	{itemPublishing, itemReleasing, "the relay ends"},
	{itemPublishing, itemGone, "its lease was lost before the publish began"},
	{itemAcked, itemGone, "DONE is written"},
	{itemFailed, itemGone, "RETRY or DEAD is written, or the table refuses it: then the lease ends"},
	{itemReleasing, itemGone, "the lease is ended, or the table refuses that: then it ends by itself"},
}

// itemMoves has the allowed next states of each state.
var itemMoves = func() (moves [itemStates][itemStates]bool) {
	for _, t := range itemTransitions {
		moves[t.from][t.to] = true
	}
	return moves
}()

// checkMove returns an error when there is no such transition.
func checkMove(from, to itemState) error {
	if itemMoves[from][to] {
		return nil
	}
	return fmt.Errorf("outbox: an item that is %s must not become %s", from, to)
}
