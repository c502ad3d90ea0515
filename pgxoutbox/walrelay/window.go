package walrelay

import (
	"math"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/ormoutbox/ormoutbox/core"
)

// window has the events between the position that is confirmed and the position that is read. It is
// the table from which the relay claims events of the log. It knows two facts about each event:
// whether it is answered, and who has it.
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
// Several goroutines use it. It does no I/O.
type window struct {
	maxEvents int
	maxBytes  int64
	elsewhere func(topic string) bool // nobody here publishes events of the topic

	mu     sync.Mutex
	queue  fifo[slot] // what was read, in order
	byID   map[core.RowID]*event
	lanes  map[core.KeyID]*lane
	topics map[string]*topic
	order  []*topic // the topics in the order in which they came
	turn   int      // the topic that claims begin with

	asks     fifo[*lane]  // keys whose first event asks the table
	asksFree fifo[*event] // events without a key that ask the table

	events int // in the queue
	bytes  int64

	done     pglogrepl.LSN // everything before it is answered
	answered int           // events that were answered since the last call of confirm

	// An event that committed up to spilled may have its row in the table already, because an
	// earlier reader of the slot put it there.
	spilled   pglogrepl.LSN
	repairing bool // events of a repair are in the queue, or are still to come
	// unsure counts events whose open rows may have been written: the answer was lost.
	unsure int

	read   position // the last event that was read
	inTx   bool     // the rest of a transaction is still to come
	closed bool     // another process may have the slot: nothing is given out

	filter    core.ClaimRequest // of the last claim: which topics and tenants are held back
	fullSince time.Time         // zero: the window has room

	room  chan struct{} // there is room again
	work  chan struct{} // there is something to ask the table
	ready chan struct{} // there is something to claim

	reading bool // an event of the log is being entered
	unsaid  int  // events that were entered since ready was signalled
}

// position is the place of an event in the log: the commit of its transaction, and its number in
// it.
type position struct {
	commit pglogrepl.LSN
	n      int
}

// event is an event of the log that is not answered yet.
type event struct {
	row    core.Claimed
	commit pglogrepl.LSN // of its transaction; zero: it comes from a repair
	state  eventState
	due    time.Time // zero: now
	lane   *lane     // nil: it has no key
	topic  *topic
	size   int64
	// asked: the table has said that no open row is before it, and since then nothing of its key
	// was spilled.
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

// slot is an event of the queue, or the end of what was read at some time.
type slot struct {
	event    *event
	end      pglogrepl.LSN // of a slot without an event
	repaired bool          // the events of a repair end here
}

// lane has the events of one key.
type lane struct {
	id      core.KeyID
	topic   *topic
	events  []*event // in the order of the log
	busy    int      // events that are claimed or moving
	queued  bool     // in topic.lanes, in topic.later or in window.asks
	spilled bool     // a row of the key may be open in the table
}

// topic has what can be claimed of a destination.
type topic struct {
	name      string
	elsewhere bool
	lanes     fifo[*lane]
	free      fifo[*event] // events without a key
	later     []*event     // events without a key, and first events of keys, that are due later
}

const eventOverhead = 512 // bytes that an event takes besides its payload, about

func newWindow(maxEvents int, maxBytes int64, elsewhere func(string) bool) *window {
	return &window{
		maxEvents: maxEvents, maxBytes: maxBytes, elsewhere: elsewhere,
		byID: map[core.RowID]*event{}, lanes: map[core.KeyID]*lane{}, topics: map[string]*topic{},
		room: make(chan struct{}, 1), work: make(chan struct{}, 1), ready: make(chan struct{}, 1),
	}
}

// hasRoom reports whether another event may be read.
func (w *window) hasRoom(now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.roomLocked() {
		w.fullSince = time.Time{}
		return true
	}
	if w.fullSince.IsZero() {
		w.fullSince = now
	}
	return false
}

func (w *window) roomLocked() bool { return w.events < w.maxEvents && w.bytes < w.maxBytes }

// begin says that the transaction begins which commits at commit.
func (w *window) begin(commit pglogrepl.LSN) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.inTx = true
	if commit > w.read.commit {
		w.read = position{commit: commit}
	}
}

// add enters the event number n, from 1 on, of a transaction. An event that was read before, on a
// connection that was lost, is left out.
func (w *window) add(row core.Claimed, commit pglogrepl.LSN, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if commit < w.read.commit || commit == w.read.commit && n <= w.read.n {
		return
	}
	w.read = position{commit: commit, n: n}
	w.reading = true
	w.enter(row, commit)
	w.reading = false
}

// mostUnsaid is how many events are entered before the relay hears of them, while more are at hand.
const mostUnsaid = 64

// flush wakes the relay if it has not heard of all events.
func (w *window) flush() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.unsaid > 0 {
		w.unsaid = 0
		signal(w.ready)
	}
}

// claimable wakes the relay, because there is something to claim. While the reader enters events of
// the log, it wakes the relay only if there are many; flush does it for the rest.
func (w *window) claimable() {
	if w.reading {
		if w.unsaid++; w.unsaid < mostUnsaid {
			return
		}
	}
	w.unsaid = 0
	signal(w.ready)
}

// addRepaired enters an event that a repair has read from the table.
func (w *window) addRepaired(row core.Claimed) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.enter(row, 0)
}

func (w *window) enter(row core.Claimed, commit pglogrepl.LSN) {
	if w.byID[row.ID] != nil { // a row that was moved to another partition: the first copy stands for both
		return
	}
	e := &event{row: row, commit: commit, size: int64(len(row.Event.Payload)) + eventOverhead}
	e.topic = w.topicOf(row.Event.Topic)
	w.byID[row.ID] = e
	w.queue.push(slot{event: e})
	w.events++
	w.bytes += e.size
	if !row.KeyID.IsZero() {
		e.lane = w.laneOf(row.KeyID, e.topic)
		e.lane.events = append(e.lane.events, e)
	}
	w.route(e)
}

// commit says that the transaction that begin has named was read, and where it ends.
func (w *window) commit(commit, end pglogrepl.LSN) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.inTx = false
	if commit >= w.read.commit {
		w.read = position{commit: commit, n: math.MaxInt}
	}
	w.mark(end)
}

// idle says that the server has sent everything up to end.
func (w *window) idle(end pglogrepl.LSN) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.inTx {
		w.mark(end)
	}
}

// mark notes that everything that was read so far is before end.
func (w *window) mark(end pglogrepl.LSN) {
	if last := w.queue.last(); last != nil && last.event == nil && !last.repaired {
		last.end = max(last.end, end)
	} else if last != nil || end > w.done {
		w.queue.push(slot{end: end})
	}
	w.advance()
}

// endRepair says that all events of a repair were entered.
func (w *window) endRepair() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue.push(slot{repaired: true})
	w.advance()
}

// advance takes out what is answered.
func (w *window) advance() {
	for {
		s := w.queue.first()
		if s == nil || s.event != nil && s.event.state != eventAnswered {
			break
		}
		switch {
		case s.event != nil:
			w.events--
			w.answered++
		case s.repaired:
			w.repairing = false
		default:
			w.done = max(w.done, s.end)
		}
		w.queue.pop()
	}
	if w.roomLocked() {
		signal(w.room)
	}
}

// progress returns the position before which everything is answered, and how many events were
// answered since the last call of confirmed.
func (w *window) progress() (end pglogrepl.LSN, answered int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.done, w.answered
}

func (w *window) confirmed(answered int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answered -= answered
}

// caughtUp reports whether rows of keys may be claimed from the table: all events are answered that
// an earlier reader may have spilled, and it is known of all others whether they are in the table.
// Otherwise an event of the log and a later one of its key, which is in the table, could be
// published beside each other.
func (w *window) caughtUp() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.closed && !w.repairing && w.unsure == 0 && w.done >= w.spilled
}

func (w *window) isRepairing() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.repairing
}

// isSpilled reports whether a row of the key may be open in the table.
func (w *window) isSpilled(id core.KeyID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.lanes[id]
	return l != nil && l.spilled
}

// spill says that these keys have open rows.
func (w *window) spill(keys []core.KeyID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range keys {
		w.laneOf(id, nil).spilled = true
	}
}

// spilledKeys counts the keys that may have open rows. It returns some of those that have no event
// in the window.
func (w *window) spilledKeys(most int) (keys []core.KeyID, all int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, l := range w.lanes {
		if !l.spilled {
			continue
		}
		if all++; len(l.events) == 0 && len(keys) < most {
			keys = append(keys, id)
		}
	}
	return keys, all
}

// unspill says that these keys had no open rows while they had no event in the window.
func (w *window) unspill(keys []core.KeyID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range keys {
		if l := w.lanes[id]; l != nil && len(l.events) == 0 {
			l.spilled = false
			w.tidy(l)
		}
	}
}

// open and shut say whether this process is known to have the slot.
func (w *window) open() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = false
	signal(w.ready)
	signal(w.work)
}

func (w *window) shut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed, w.inTx = true, false
}

func (w *window) topicOf(name string) *topic {
	t := w.topics[name]
	if t == nil {
		t = &topic{name: name, elsewhere: w.elsewhere(name)}
		w.topics[name] = t
		w.order = append(w.order, t)
	}
	return t
}

func (w *window) laneOf(id core.KeyID, t *topic) *lane {
	l := w.lanes[id]
	if l == nil {
		l = &lane{id: id}
		w.lanes[id] = l
	}
	if l.topic == nil {
		l.topic = t
	}
	return l
}

func (w *window) tidy(l *lane) {
	if len(l.events) == 0 && !l.spilled && !l.queued && l.busy == 0 {
		delete(w.lanes, l.id)
	}
}

// mustAsk reports whether the table has to be asked before the event may be claimed.
func (w *window) mustAsk(e *event) bool {
	switch {
	case e.away || e.topic.elsewhere || e.unsure:
		return true
	case e.asked:
		return false
	}
	return e.lane != nil && e.lane.spilled || w.spilled > 0 && e.commit <= w.spilled
}

// route puts a waiting event, or the key of an event, where it belongs.
func (w *window) route(e *event) {
	l := e.lane
	if l == nil {
		switch {
		case e.state != eventWaiting:
		case w.mustAsk(e):
			w.asksFree.push(e)
			signal(w.work)
		case !e.due.IsZero():
			e.topic.later = append(e.topic.later, e)
		default:
			e.topic.free.push(e)
			w.claimable()
		}
		return
	}
	if l.queued || l.busy > 0 {
		return
	}
	if len(l.events) == 0 {
		w.tidy(l)
		return
	}
	l.queued = true
	switch head := l.events[0]; {
	case w.mustAsk(head):
		w.asks.push(l)
		signal(w.work)
	case !head.due.IsZero():
		l.topic.later = append(l.topic.later, head)
	default:
		l.topic.lanes.push(l)
		w.claimable()
	}
}

// reroute takes the key of an event out of the queue that the caller has taken it from, and puts it
// where it belongs.
func (w *window) reroute(e *event) {
	if e.lane != nil {
		e.lane.queued = false
	}
	w.route(e)
}

// wants reports whether a claim wants rows of the event's destination and tenant.
func wants(req *core.ClaimRequest, e *event) bool {
	return req.Wants(e.topic.name, e.row.Event.TenantID)
}

// claim gives events to the relay: those of keys, or the others. more says that there are others
// that the claim had no room for.
func (w *window) claim(req core.ClaimRequest, ordered bool, now time.Time) (rows []core.Claimed, more bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || req.Limit <= 0 {
		return nil, false
	}
	if len(req.Only) != 1 {
		w.filter = core.ClaimRequest{
			Only: req.Only, Except: req.Except, Served: req.Served, ExceptTenants: req.ExceptTenants,
		}
	}
	c := claims{window: w, req: req, left: req.MaxBytes}
	var wanted []*topic
	ready := 0
	w.turn++
	for i := range w.order {
		t := w.order[(w.turn+i)%len(w.order)]
		if !req.Wants(t.name, "") {
			continue
		}
		t.takeLater(w, func(e *event) bool { return !e.due.After(now) }, func(e *event) { e.due = time.Time{} })
		if n := t.waiting(ordered); n > 0 {
			ready += n
			wanted = append(wanted, t)
		}
	}
	// a run of one key is short while many keys wait, as that of the table
	c.run = max(1, min(req.Run, max(req.Limit/max(ready, 1), req.Limit/64)))
	for i, t := range wanted {
		c.from(t, ordered, (c.room()+len(wanted)-i-1)/(len(wanted)-i))
	}
	for _, t := range wanted {
		c.from(t, ordered, c.room())
		more = more || t.waiting(ordered) > 0
	}
	return c.rows, more && (c.room() <= 0 || c.left <= 0)
}

// claims is a claim while it goes on.
type claims struct {
	*window
	req  core.ClaimRequest
	run  int
	left int64 // bytes
	rows []core.Claimed
}

func (c *claims) room() int { return c.req.Limit - len(c.rows) }

func (c *claims) fits(e *event) bool {
	return len(c.rows) == 0 || c.room() > 0 && int64(len(e.row.Event.Payload)) <= c.left
}

// take gives one event to the relay.
func (c *claims) take(e *event) {
	e.state = eventClaimed
	e.row.ClaimNo = c.req.ClaimNo
	c.left -= int64(len(e.row.Event.Payload))
	c.rows = append(c.rows, e.row)
	if e.lane != nil {
		e.lane.busy++
	}
}

// from takes at most share events of a destination.
func (c *claims) from(t *topic, ordered bool, share int) {
	end := len(c.rows) + share
	if ordered {
		c.fromLanes(t, end)
		return
	}
	for range t.free.len() {
		e := *t.free.first()
		if len(c.rows) >= end || e.state == eventWaiting && !c.fits(e) {
			return
		}
		t.free.pop()
		switch {
		case e.state != eventWaiting: // it was accepted after all
		case c.mustAsk(e):
			c.route(e)
		case !wants(&c.req, e): // a paused tenant
			t.free.push(e)
		default:
			c.take(e)
		}
	}
}

func (c *claims) fromLanes(t *topic, end int) {
	for range t.lanes.len() {
		l := *t.lanes.first()
		if len(c.rows) >= end || len(l.events) > 0 && !c.fits(l.events[0]) {
			return
		}
		t.lanes.pop()
		switch {
		case len(l.events) == 0: // they were accepted after all
			l.queued = false
			c.tidy(l)
			continue
		case !wants(&c.req, l.events[0]): // a paused tenant
			t.lanes.push(l)
			continue
		}
		l.queued = false
		for i, e := range l.events {
			if i >= c.run || len(c.rows) >= end || !c.fits(e) || c.mustAsk(e) || !e.due.IsZero() {
				break
			}
			c.take(e)
		}
		c.route(l.events[0]) // if it could not be taken
	}
}

// takeLater takes events out of those that are due later, changes them, and puts them where they
// belong.
func (t *topic) takeLater(w *window, which func(*event) bool, change func(*event)) {
	if len(t.later) == 0 {
		return
	}
	var taken []*event
	t.later = slices.DeleteFunc(t.later, func(e *event) bool {
		take := e.state != eventWaiting || which(e)
		if take {
			taken = append(taken, e)
		}
		return take
	})
	for _, e := range taken {
		change(e)
		w.reroute(e)
	}
}

func (t *topic) waiting(ordered bool) int {
	if ordered {
		return t.lanes.len()
	}
	return t.free.len()
}

// nextDue returns when an event becomes claimable by time alone.
func (w *window) nextDue(req core.ClaimRequest, now time.Time) (d time.Duration, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return 0, false
	}
	for _, t := range w.order {
		if !req.Wants(t.name, "") {
			continue
		}
		for _, e := range t.later {
			if left := max(e.due.Sub(now), 0); !ok || left < d {
				d, ok = left, true
			}
		}
	}
	return d, ok
}

// held returns the event of a claim, or nil if the claim is not the latest one of the event.
func (w *window) held(ref core.ClaimRef) *event {
	e := w.byID[ref.ID]
	if e == nil || e.state != eventClaimed || e.row.ClaimNo != ref.ClaimNo {
		return nil
	}
	return e
}

// has reports whether the claim is one of an event of the log. The same row may be claimed from the
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

// accept says that the destination has accepted an event. It reports false for a row that was not
// claimed from the window, or whose open row is being written, or may have been.
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
	w.bytes -= e.size
	w.sure(e)
	w.giveBack(e)
	e.state = eventAnswered
	e.row = core.Claimed{}
	if l := e.lane; l != nil {
		if i := slices.Index(l.events, e); i >= 0 {
			l.events = slices.Delete(l.events, i, i+1)
		}
		w.route(e)
	}
}

// doubt says that the open row of an event may have been written. sure says that this is known.
func (w *window) doubt(e *event) {
	if !e.unsure {
		e.unsure = true
		w.unsure++
	}
}

func (w *window) sure(e *event) {
	if e.unsure {
		e.unsure = false
		w.unsure--
	}
}

// giveBack takes an event from the relay, or ends its move.
func (w *window) giveBack(e *event) {
	if e.lane != nil && e.state != eventWaiting {
		e.lane.busy--
	}
	e.state = eventWaiting
}

// release gives an event back. A due that is not zero is when it may be claimed again.
func (w *window) release(ref core.ClaimRef, due time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.held(ref)
	if e == nil {
		return false
	}
	w.giveBack(e)
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
		e.state = eventMoving
	}
	return e
}

// refused ends what refuse began: the event has its open row. blocks says whether the row keeps its
// place in its key.
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
	e.state = eventClaimed
	w.doubt(e)
}

// toAsk takes at most most events that have to ask the table. The events of a key are in its order.
func (w *window) toAsk(most int) (events []*event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil
	}
	take := func(e *event) {
		e.state = eventMoving
		if e.lane != nil {
			e.lane.busy++
		}
		events = append(events, e)
	}
	for w.asksFree.len() > 0 && len(events) < most {
		if e := w.asksFree.pop(); e.state == eventWaiting {
			take(e)
		}
	}
	for w.asks.len() > 0 && len(events) < most {
		l := w.asks.pop()
		l.queued = false
		for _, e := range l.events {
			if l.busy > 0 && e == l.events[0] || len(events) >= most || !w.mustAsk(e) {
				break
			}
			take(e)
		}
		if len(l.events) > 0 {
			w.route(l.events[0]) // if it need not ask any more
		} else {
			w.tidy(l)
		}
	}
	return events
}

// told ends what toAsk began.
func (w *window) told(events []*event, verdicts []verdict) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, e := range events {
		if l := e.lane; l != nil && !e.topic.elsewhere {
			switch verdicts[i] {
			case inTable:
				l.spilled = true
			case fromLog: // until an event behind it says otherwise
				l.spilled = false
			case ended:
			}
		}
		w.sure(e)
		if verdicts[i] == fromLog {
			e.asked, e.away = true, false
		}
	}
	for i, e := range events {
		if verdicts[i] == fromLog {
			w.giveBack(e)
			w.route(e)
		} else {
			w.answer(e)
		}
	}
	w.advance()
}

// untold undoes toAsk: the table has not answered.
func (w *window) untold(events []*event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range events {
		w.giveBack(e)
		w.doubt(e)
	}
	for _, e := range events {
		w.route(e)
	}
}

// stalled sends the events to the table whose destination is held back, if the window has had no
// room for limit. It returns how many they are.
func (w *window) stalled(now time.Time, limit time.Duration) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if limit <= 0 || w.closed || w.roomLocked() || w.fullSince.IsZero() || now.Sub(w.fullSince) < limit {
		return 0
	}
	w.fullSince = now
	held := func(e *event) bool { return e.state == eventWaiting && !wants(&w.filter, e) }
	send := func(e *event) {
		all := []*event{e}
		if e.lane != nil {
			all = e.lane.events
		}
		for _, e := range all {
			if held(e) {
				e.away = true
				n++
			}
		}
	}
	for _, t := range w.order {
		t.takeLater(w, held, send)
		for range t.free.len() {
			e := t.free.pop()
			send(e)
			w.route(e)
		}
		for range t.lanes.len() {
			l := t.lanes.pop()
			if len(l.events) == 0 {
				l.queued = false
				w.tidy(l)
				continue
			}
			send(l.events[0])
			w.reroute(l.events[0])
		}
	}
	return n
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
