package walrelay

import "time"

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

// told ends what toAsk began.
func (w *window) told(events []*event, verdicts []verdict) {
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
