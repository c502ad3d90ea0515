package walrelay

import (
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

// wants reports whether a claim wants rows of the event's destination and tenant.
func wants(req *core.ClaimRequest, e *event) bool {
	return req.Wants(e.topic.name, e.row.Event.TenantID)
}

// claim gives events to the relay: events with a key, or without one. more reports that others had
// no room in the claim.
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
	for t := range w.topics.inTurn {
		if !req.Wants(t.name, "") {
			continue
		}
		w.takeLater(t, func(e *event) bool { return !e.due.After(now) }, func(e *event) { e.due = time.Time{} })
		if n := t.waiting.len(ordered); n > 0 {
			ready += n
			wanted = append(wanted, t)
		}
	}
	// a run of one key is short while many keys wait, as with the table's claims
	c.run = max(1, min(req.Run, max(req.Limit/max(ready, 1), req.Limit/64)))
	for i, t := range wanted {
		c.from(t, ordered, (c.room()+len(wanted)-i-1)/(len(wanted)-i))
	}
	for _, t := range wanted {
		c.from(t, ordered, c.room())
		more = more || t.waiting.len(ordered) > 0
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
	e.take(eventClaimed)
	e.row.ClaimNo = c.req.ClaimNo
	c.left -= int64(len(e.row.Event.Payload))
	c.rows = append(c.rows, e.row)
}

// from takes at most share events of a destination.
func (c *claims) from(t *topic, ordered bool, share int) {
	end := len(c.rows) + share
	if ordered {
		c.fromLanes(t, end)
		return
	}
	free := &t.waiting.free
	for range free.len() {
		e := *free.first()
		if len(c.rows) >= end || e.state == eventWaiting && !c.fits(e) {
			return
		}
		free.pop()
		switch {
		case e.state != eventWaiting: // it was accepted after all
		case c.mustAsk(e):
			c.route(e)
		case !wants(&c.req, e): // a paused tenant
			free.push(e)
		default:
			c.take(e)
		}
	}
}

func (c *claims) fromLanes(t *topic, end int) {
	for range t.waiting.lanes.len() {
		l := *t.waiting.lanes.first()
		if len(c.rows) >= end || len(l.events) > 0 && !c.fits(l.events[0]) {
			return
		}
		t.waiting.popLane()
		switch {
		case len(l.events) == 0: // they were accepted after all
			c.lanes.tidy(l)
			continue
		case !wants(&c.req, l.events[0]): // a paused tenant
			t.waiting.pushLane(l)
			continue
		}
		for i, e := range l.events {
			if i >= c.run || len(c.rows) >= end || !c.fits(e) || c.mustAsk(e) || !e.due.IsZero() {
				break
			}
			c.take(e)
		}
		c.route(l.events[0]) // if it could not be taken
	}
}

// nextDue returns when an event becomes claimable by time alone.
func (w *window) nextDue(req core.ClaimRequest, now time.Time) (d time.Duration, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return 0, false
	}
	for _, t := range w.topics.all {
		if !req.Wants(t.name, "") {
			continue
		}
		if left, is := t.later.next(now); is && (!ok || left < d) {
			d, ok = left, true
		}
	}
	return d, ok
}

// toAsk takes at most most events that have to ask the table. The events of a key are in its order.
func (w *window) toAsk(most int) (events []*event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil
	}
	take := func(e *event) {
		e.take(eventMoving)
		events = append(events, e)
	}
	for w.asks.free.len() > 0 && len(events) < most {
		if e := w.asks.free.pop(); e.state == eventWaiting {
			take(e)
		}
	}
	for w.asks.lanes.len() > 0 && len(events) < most {
		l := w.asks.popLane()
		for _, e := range l.events {
			if l.busy > 0 && e == l.events[0] || len(events) >= most || !w.mustAsk(e) {
				break
			}
			take(e)
		}
		if len(l.events) > 0 {
			w.route(l.events[0]) // if it need not ask any more
		} else {
			w.lanes.tidy(l)
		}
	}
	return events
}

// onVerdicts ends a round of toAsk with the table's verdicts.
func (w *window) onVerdicts(events []*event, verdicts []verdict) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, e := range events {
		if l := e.lane; l != nil && !e.topic.elsewhere {
			switch verdicts[i] {
			case inTable, inFront:
				l.spilled = true
			case fromLog: // until an event behind it says otherwise
				l.spilled = false
			case ended:
			}
		}
		w.spills.sure(e)
		if verdicts[i].here() {
			e.asked, e.away = true, false
		}
	}
	for i, e := range events {
		if verdicts[i].here() {
			e.giveBack()
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
		e.giveBack()
		w.spills.doubt(e)
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
	if limit <= 0 || w.closed || !w.capacity.stalled(now, limit) {
		return 0
	}
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
	for _, t := range w.topics.all {
		w.takeLater(t, held, send)
		for range t.waiting.free.len() {
			e := t.waiting.free.pop()
			send(e)
			w.route(e)
		}
		for range t.waiting.lanes.len() {
			l := t.waiting.popLane()
			if len(l.events) == 0 {
				w.lanes.tidy(l)
				continue
			}
			send(l.events[0])
			w.route(l.events[0])
		}
	}
	return n
}

// mustAsk reports whether the table has to be asked before the event may be claimed. A replay asks
// about the event that it repeats.
func (w *window) mustAsk(e *event) bool {
	switch {
	case e.away || e.topic.elsewhere || e.unsure:
		return true
	case e.asked:
		return false
	}
	return e.lane != nil && e.lane.spilled || w.spills.mayHave(e.commit) || !e.row.ReplayOf.IsZero()
}

// route puts a waiting event, or the key of an event, where it belongs.
func (w *window) route(e *event) {
	t := e.topic
	if l := e.lane; l != nil {
		if l.queued || l.busy > 0 {
			return
		}
		if len(l.events) == 0 {
			w.lanes.tidy(l)
			return
		}
		e, t = l.events[0], l.topic
	} else if e.state != eventWaiting {
		return
	}
	switch {
	case w.mustAsk(e):
		w.asks.push(e)
		signal(w.signals.work)
	case !e.due.IsZero():
		t.later.push(e)
	default:
		t.waiting.push(e)
		w.signals.claimable()
	}
}

// takeLater removes matching events from the delayed ones, changes them, and routes them.
func (w *window) takeLater(t *topic, which func(*event) bool, change func(*event)) {
	for _, e := range t.later.take(which) {
		change(e)
		w.route(e)
	}
}
