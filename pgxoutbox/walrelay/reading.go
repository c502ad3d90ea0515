package walrelay

import (
	"math"

	"github.com/jackc/pglogrepl"
)

// position is the place of an event in the log: the commit of its transaction, and its number in
// it.
type position struct {
	commit pglogrepl.LSN
	n      int
}

// reading is how far the log was read. It only goes on: a connection that begins earlier brings
// again what was read before. The zero value has read nothing; under the mutex of window.
type reading struct {
	last position // the last event that was read
	inTx bool     // the rest of a transaction is still to come
}

// begin says that the transaction begins which commits at commit.
func (r *reading) begin(commit pglogrepl.LSN) {
	r.inTx = true
	if commit > r.last.commit {
		r.last = position{commit: commit}
	}
}

// next reports whether the event at a position is the next one. Otherwise it was read before.
func (r *reading) next(at position) bool {
	if at.commit < r.last.commit || at.commit == r.last.commit && at.n <= r.last.n {
		return false
	}
	r.last = at
	return true
}

// end says that all events of the transaction were read.
func (r *reading) end(commit pglogrepl.LSN) {
	r.inTx = false
	if commit >= r.last.commit {
		r.last = position{commit: commit, n: math.MaxInt}
	}
}

// lost says that the connection is lost, in the middle of a transaction perhaps.
func (r *reading) lost() { r.inTx = false }
