package walrelay

import (
	"slices"
	"time"
)

// later are events that are due later: events without a key, and first events of keys. The zero
// value is empty; under the mutex of window.
type later struct {
	events []*event
}

// push adds an event.
func (q *later) push(e *event) {
	if e.lane != nil {
		e.lane.queued = true
	}
	q.events = append(q.events, e)
}

// take removes and returns the events for which the function says so, and those that do not wait
// any more.
func (q *later) take(which func(*event) bool) (taken []*event) {
	if len(q.events) == 0 {
		return nil
	}
	q.events = slices.DeleteFunc(q.events, func(e *event) bool {
		if e.state == eventWaiting && !which(e) {
			return false
		}
		if e.lane != nil {
			e.lane.queued = false
		}
		taken = append(taken, e)
		return true
	})
	return taken
}

// next returns how long it takes from now until the first event is due. ok is false if there is no
// event.
func (q *later) next(now time.Time) (d time.Duration, ok bool) {
	for _, e := range q.events {
		if left := max(e.due.Sub(now), 0); !ok || left < d {
			d, ok = left, true
		}
	}
	return d, ok
}
