package walrelay

// waiting are keys and events that wait for the same: to be claimed, or to ask the table. The zero
// value is empty; under the mutex of window.
//
// A key is in one place at a time, which lane.queued says. So it comes once, however many events it
// has.
type waiting struct {
	lanes fifo[*lane]  // keys, for their first event
	free  fifo[*event] // events without a key
}

// push adds an event without a key, or the key of an event.
func (q *waiting) push(e *event) {
	if e.lane == nil {
		q.free.push(e)
		return
	}
	q.pushLane(e.lane)
}

func (q *waiting) pushLane(l *lane) {
	l.queued = true
	q.lanes.push(l)
}

// popLane takes out the first key.
func (q *waiting) popLane() *lane {
	l := q.lanes.pop()
	l.queued = false
	return l
}

// len is the number of keys, or of events without a key.
func (q *waiting) len(ordered bool) int {
	if ordered {
		return q.lanes.len()
	}
	return q.free.len()
}
