package walrelay

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

// takeLater takes events out of those that are due later, changes them, and puts them where they
// belong.
func (w *window) takeLater(t *topic, which func(*event) bool, change func(*event)) {
	for _, e := range t.later.take(which) {
		change(e)
		w.route(e)
	}
}
