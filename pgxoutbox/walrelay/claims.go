package walrelay

import (
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

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
	// a run of one key is short while many keys wait, as that of the table
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
