package walrelay

import (
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/ormoutbox/ormoutbox/core"
)

// event is an event of the log that is not answered yet.
type event struct {
	row    core.Claimed
	commit pglogrepl.LSN // of its transaction; zero: it comes from a repair
	state  eventState
	due    time.Time // zero: now
	lane   *lane     // nil: it has no key
	topic  *topic
	size   int64
	// asked: by the table's answer no open row is before it, and since then nothing of its key was
	// spilled.
	asked bool
	// away: its destination has been held back for so long that it goes to the table.
	away   bool
	unsure bool // its open row may have been written
}

type eventState uint8

const (
	eventWaiting  eventState = iota
	eventClaimed             // the relay has it
	eventMoving              // its row is being looked up or written
	eventAnswered            // accepted, or open in the table
)

const eventOverhead = 512 // bytes that an event takes besides its payload, about

// take gives a waiting event to the relay, or begins its move. An event that the relay has may be
// moved, and the other way round.
func (e *event) take(state eventState) {
	if e.lane != nil && e.state == eventWaiting {
		e.lane.busy++
	}
	e.state = state
}

// giveBack takes an event from the relay, or ends its move.
func (e *event) giveBack() {
	if e.lane != nil && e.state != eventWaiting {
		e.lane.busy--
	}
	e.state = eventWaiting
}

// held returns the event of a claim, or nil if the event has a later claim.
func (w *window) held(ref core.ClaimRef) *event {
	e := w.byID[ref.ID]
	if e == nil || e.state != eventClaimed || e.row.ClaimNo != ref.ClaimNo {
		return nil
	}
	return e
}

// has reports whether the claim is for an event of the log. The same row may be claimed from the
// table as well: an event that was spilled is read again after a crash.
func (w *window) has(ref core.ClaimRef) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.byID[ref.ID]
	return e != nil && e.row.ClaimNo == ref.ClaimNo
}

// holds reports whether the relay still has the event, and this process the slot.
func (w *window) holds(ref core.ClaimRef) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.closed && w.held(ref) != nil
}

// accept records that the destination has accepted an event. It reports false for a row that was
// not claimed from the window, or whose open row is being written, or may have been.
func (w *window) accept(id core.RowID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.byID[id]
	if e == nil || e.row.ClaimNo == 0 || e.state == eventMoving || e.unsure {
		return false
	}
	w.answer(e)
	w.advance()
	return true
}

// answer ends an event.
func (w *window) answer(e *event) {
	delete(w.byID, e.row.ID)
	w.capacity.free(e.size)
	w.spills.sure(e)
	e.giveBack()
	e.state = eventAnswered
	e.row = core.Claimed{}
	if l := e.lane; l != nil {
		l.leave(e)
		w.route(e)
	}
}

// release gives an event back. A due that is not zero is when it may be claimed again.
func (w *window) release(ref core.ClaimRef, due time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.held(ref)
	if e == nil {
		return false
	}
	e.giveBack()
	e.due = due
	w.route(e)
	return true
}

// refuse takes an event from the relay that its destination has refused, to give it an open row. It
// returns nil if the claim is over.
func (w *window) refuse(ref core.ClaimRef) *event {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.held(ref)
	if e != nil {
		e.take(eventMoving)
	}
	return e
}

// refused ends what refuse began: the event has its open row. blocks: the row keeps its place in
// its key.
func (w *window) refused(e *event, blocks bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if l := e.lane; l != nil && blocks {
		l.spilled = true
		for _, later := range l.events {
			later.asked = false
		}
	}
	w.answer(e)
	w.advance()
}

// keep undoes refuse if the open row may not have been written. The relay will report the refusal
// again.
func (w *window) keep(e *event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e.take(eventClaimed)
	w.spills.doubt(e)
}
