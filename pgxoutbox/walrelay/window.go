package walrelay

import (
	"math"
	"sync"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/ormoutbox/ormoutbox/core"
)

// window has the events between the position that is confirmed and the position that is read. It is
// the table from which the relay claims events of the log. Of each event it has two facts: whether
// it is answered, and who holds it.
//
// The rules, whose reasons are in docs/design/walrelay.md:
//
//   - A position is confirmed when every event before it is answered.
//   - An event is answered when the destination has accepted it, or when its open row has
//     committed.
//   - Of one key, the relay gets events in the order of the log, and only from the first one on
//     that is not answered.
//   - While a row of a key may be open in the table, each later event asks the table first. If an
//     open row is before it, the event gets an open row too, and is published from the table.
//
// Several goroutines use it. It does no I/O. One mutex guards its parts, which are types of their
// own. Its methods in event.go record what became of an event, and those in route.go put it into
// its queue. claims.go gives events out, and asks.go sends them to the table.
type window struct {
	mu          sync.Mutex
	signals     signals
	capacity    capacity
	reading     reading
	unconfirmed unconfirmed
	spills      spills
	topics      topics
	lanes       lanes
	asks        waiting               // to ask the table
	byID        map[core.RowID]*event // the events that are not answered
	filter      core.ClaimRequest     // of the last claim: which topics and tenants are held back
	closed      bool                  // another process may have the slot: nothing is given out
}

func newWindow(maxEvents int, maxBytes int64, elsewhere func(string) bool) *window {
	return &window{
		signals:  newSignals(),
		capacity: capacity{maxEvents: maxEvents, maxBytes: maxBytes},
		topics:   topics{elsewhere: elsewhere},
		byID:     map[core.RowID]*event{},
	}
}

// start sets the position from which the log is read, and the position up to which an earlier
// reader may have put events into the table.
func (w *window) start(at, spilled pglogrepl.LSN) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unconfirmed.done, w.spills.upTo = at, spilled
}

// hasRoom reports whether another event may be read.
func (w *window) hasRoom(now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.capacity.look(now)
}

// begin is called at the begin of the transaction that commits at commit.
func (w *window) begin(commit pglogrepl.LSN) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reading.begin(commit)
}

// add enters the event number n, from 1 on, of a transaction. An event that was read before, on a
// connection that was lost, is left out.
func (w *window) add(row core.Claimed, commit pglogrepl.LSN, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.reading.next(position{commit: commit, n: n}) {
		return
	}
	w.signals.entering = true
	w.enter(row, commit)
	w.signals.entering = false
}

// commit is called at the end of the transaction that began last.
func (w *window) commit(commit, end pglogrepl.LSN) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reading.end(commit)
	w.unconfirmed.end(end)
	w.advance()
}

// idle is called when the server has sent everything up to end.
func (w *window) idle(end pglogrepl.LSN) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.reading.inTx {
		w.unconfirmed.end(end)
		w.advance()
	}
}

// flush wakes the relay if events were entered since it was last woken.
func (w *window) flush() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.signals.flush()
}

// beginRepair is called before events of a repair are entered.
func (w *window) beginRepair() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unconfirmed.repairing = true
}

// addRepaired enters an event that a repair has read from the table.
func (w *window) addRepaired(row core.Claimed) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.enter(row, 0)
}

// repairedTo calls fn when the events of a repair that were entered so far are answered. fn must not
// wait.
func (w *window) repairedTo(fn func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unconfirmed.entries.push(entry{passed: fn})
	w.advance()
}

// endRepair is called after all events of a repair were entered.
func (w *window) endRepair() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unconfirmed.endRepair()
	w.advance()
}

// enter adds an event.
func (w *window) enter(row core.Claimed, commit pglogrepl.LSN) {
	if w.byID[row.ID] != nil { // a row that was moved to another partition: the first copy stands for both
		return
	}
	if w.byID[row.ReplayOf] != nil { // it would be the first copy, and out of order: the event stands for both
		return
	}
	e := &event{row: row, commit: commit, size: int64(len(row.Event.Payload)) + eventOverhead}
	e.topic = w.topics.get(row.Event.Topic)
	w.byID[row.ID] = e
	w.unconfirmed.add(e)
	w.capacity.enter(e.size)
	if !row.KeyID.IsZero() {
		e.lane = w.lanes.get(row.KeyID, e.topic)
		w.lanes.enter(e.lane, e)
	}
	w.route(e)
}

// advance removes answered events.
func (w *window) advance() {
	w.capacity.leave(w.unconfirmed.advance())
	if !w.capacity.full() {
		signal(w.signals.room)
	}
}

// progress returns the position before which everything is answered, and how many events were
// answered since the last call of confirmed.
func (w *window) progress() (end pglogrepl.LSN, answered int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.unconfirmed.done, w.unconfirmed.answered
}

// confirmed is called when events that progress has counted are confirmed.
func (w *window) confirmed(answered int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unconfirmed.confirmed(answered)
}

// caughtUp reports whether rows of keys may be claimed from the table: all events that an earlier
// reader may have spilled are answered, and no other spill is in doubt. Otherwise an event of the
// log and a later one of its key, which is in the table, could be published at the same time.
func (w *window) caughtUp() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.closed && !w.unconfirmed.repairing && w.spills.known(w.unconfirmed.done)
}

// isRepairing reports whether an event of a repair is not answered yet, or is still to come.
func (w *window) isRepairing() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.unconfirmed.repairing
}

// isSpilled reports whether a row of the key may be open in the table.
func (w *window) isSpilled(id core.KeyID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.lanes.find(id)
	return l != nil && l.spilled
}

// spill marks these keys as having open rows.
func (w *window) spill(keys []core.KeyID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lanes.spill(keys)
}

// spilledKeys counts the keys that may have open rows. It returns some keys without an event in the
// window.
func (w *window) spilledKeys(most int) (keys []core.KeyID, all int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lanes.spilled(most)
}

// unspill records that these keys, which spilledKeys has returned, had no open rows when the table
// was asked.
func (w *window) unspill(keys []core.KeyID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lanes.unspill(keys)
}

// open and shut set whether this process certainly has the slot.
func (w *window) open() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = false
	signal(w.signals.ready)
	signal(w.signals.work)
}

func (w *window) shut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	w.reading.lost()
}

// capacity is how much the window has, and how much it may have. It is full when either limit is
// reached, and may be over maxBytes by one event. The zero value is full; under the mutex of
// window.
type capacity struct {
	maxEvents int
	maxBytes  int64
	events    int // that are not confirmed
	bytes     int64
	fullSince time.Time // zero: the reader has found room
}

func (c *capacity) full() bool { return c.events >= c.maxEvents || c.bytes >= c.maxBytes }

// look reports whether there is room at now. It notes since when there is none.
func (c *capacity) look(now time.Time) bool {
	if !c.full() {
		c.fullSince = time.Time{}
		return true
	}
	if c.fullSince.IsZero() {
		c.fullSince = now
	}
	return false
}

// stalled reports whether there has been no room for limit. It does so once in that time.
func (c *capacity) stalled(now time.Time, limit time.Duration) bool {
	if !c.full() || c.fullSince.IsZero() || now.Sub(c.fullSince) < limit {
		return false
	}
	c.fullSince = now
	return true
}

// enter counts an event of size bytes.
func (c *capacity) enter(size int64) {
	c.events++
	c.bytes += size
}

// free takes back the bytes of an event that is answered. The event counts until it leaves.
func (c *capacity) free(size int64) { c.bytes -= size }

// leave takes back events that no longer hold a position back.
func (c *capacity) leave(events int) { c.events -= events }

// position is the place of an event in the log: the commit of its transaction, and its number in
// it.
type position struct {
	commit pglogrepl.LSN
	n      int
}

// reading is how far the log was read. It never goes back: a connection that begins earlier repeats
// events. The zero value has read nothing; under the mutex of window.
type reading struct {
	last position // the last event that was read
	inTx bool     // the rest of a transaction is still to come
}

// begin is called at the begin of the transaction that commits at commit.
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

// end is called when all events of the transaction were read.
func (r *reading) end(commit pglogrepl.LSN) {
	r.inTx = false
	if commit >= r.last.commit {
		r.last = position{commit: commit, n: math.MaxInt}
	}
}

// lost is called when the connection is lost, perhaps in the middle of a transaction.
func (r *reading) lost() { r.inTx = false }
