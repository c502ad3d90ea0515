package walrelay

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
		w.lanes.tidy(l)
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
