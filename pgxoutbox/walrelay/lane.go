package walrelay

import "github.com/ormoutbox/ormoutbox/core"

// lane has the events of one key.
type lane struct {
	id      core.KeyID
	topic   *topic
	events  []*event // in the order of the log
	busy    int      // events that are claimed or moving
	queued  bool     // in topic.lanes, in topic.later or in window.asks
	spilled bool     // a row of the key may be open in the table
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

// mustAsk reports whether the table has to be asked before the event may be claimed.
func (w *window) mustAsk(e *event) bool {
	switch {
	case e.away || e.topic.elsewhere || e.unsure:
		return true
	case e.asked:
		return false
	}
	return e.lane != nil && e.lane.spilled || w.spills.mayHave(e.commit)
}

// route puts a waiting event, or the key of an event, where it belongs.
func (w *window) route(e *event) {
	l := e.lane
	if l == nil {
		switch {
		case e.state != eventWaiting:
		case w.mustAsk(e):
			w.asksFree.push(e)
			signal(w.signals.work)
		case !e.due.IsZero():
			e.topic.later = append(e.topic.later, e)
		default:
			e.topic.free.push(e)
			w.signals.claimable()
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
		signal(w.signals.work)
	case !head.due.IsZero():
		l.topic.later = append(l.topic.later, head)
	default:
		l.topic.lanes.push(l)
		w.signals.claimable()
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
