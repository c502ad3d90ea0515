package walrelay

import (
	"slices"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

// lane has the events of one key.
type lane struct {
	id      core.KeyID
	topic   *topic
	events  []*event // in the order of the log
	busy    int      // events that are claimed or moving
	queued  bool     // in topic.waiting, in topic.later or in window.asks
	spilled bool     // a row of the key may be open in the table
	idle    bool     // no event of the key was entered since lanes.spilled has returned it
}

// leave takes an event out.
func (l *lane) leave(e *event) {
	if i := slices.Index(l.events, e); i >= 0 {
		l.events = slices.Delete(l.events, i, i+1)
	}
}

// lanes are the keys that have an event in the window, or may have an open row in the table. Other
// keys are forgotten. The zero value has none; under the mutex of window.
type lanes struct {
	byKey map[core.KeyID]*lane
}

// find returns the lane of a key, or nil.
func (s *lanes) find(id core.KeyID) *lane { return s.byKey[id] }

// get returns the lane of a key. The topic may be nil if it is not known yet.
func (s *lanes) get(id core.KeyID, t *topic) *lane {
	l := s.byKey[id]
	if l == nil {
		if s.byKey == nil {
			s.byKey = map[core.KeyID]*lane{}
		}
		l = &lane{id: id}
		s.byKey[id] = l
	}
	if l.topic == nil {
		l.topic = t
	}
	return l
}

// tidy forgets a lane without events and open rows.
func (s *lanes) tidy(l *lane) {
	if len(l.events) == 0 && !l.spilled && !l.queued && l.busy == 0 {
		delete(s.byKey, l.id)
	}
}

// spill marks these keys as having open rows.
func (s *lanes) spill(keys []core.KeyID) {
	for _, id := range keys {
		s.get(id, nil).spilled = true
	}
}

// enter adds an event to its lane.
func (s *lanes) enter(l *lane, e *event) {
	l.events = append(l.events, e)
	l.idle = false
}

// spilled counts the keys that may have open rows. It returns some keys without an event in the
// window.
func (s *lanes) spilled(most int) (keys []core.KeyID, all int) {
	for id, l := range s.byKey {
		if !l.spilled {
			continue
		}
		if all++; len(l.events) == 0 && len(keys) < most {
			l.idle = true
			keys = append(keys, id)
		}
	}
	return keys, all
}

// unspill records that these keys, which spilled has returned, had no open rows when the table was
// asked. It leaves out a key of which an event was entered since: that event may have got an open
// row after the answer.
func (s *lanes) unspill(keys []core.KeyID) {
	for _, id := range keys {
		if l := s.byKey[id]; l != nil && l.idle {
			l.spilled = false
			s.tidy(l)
		}
	}
}

// fifo is a queue. The zero value is empty.
type fifo[T any] struct {
	items []T
	head  int
}

func (q *fifo[T]) len() int { return len(q.items) - q.head }

func (q *fifo[T]) push(v T) {
	if q.head > 64 && q.head > len(q.items)/2 {
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	q.items = append(q.items, v)
}

// first returns the first item, or nil.
func (q *fifo[T]) first() *T {
	if q.len() == 0 {
		return nil
	}
	return &q.items[q.head]
}

// last returns the last item, or nil.
func (q *fifo[T]) last() *T {
	if q.len() == 0 {
		return nil
	}
	return &q.items[len(q.items)-1]
}

func (q *fifo[T]) pop() (v T) {
	var zero T
	v, q.items[q.head] = q.items[q.head], zero
	q.head++
	if q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
	}
	return v
}

// waiting are keys and events that wait for the same: to be claimed, or to ask the table. The zero
// value is empty; under the mutex of window.
//
// A key is in one place at a time, by lane.queued. So it comes once, however many events it has.
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

// take removes and returns the events that which selects, and events that do not wait any more.
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

// topic has the waiting events of a destination.
type topic struct {
	name      string
	elsewhere bool    // nobody here publishes its events
	waiting   waiting // to be claimed
	later     later
}

// topics are the destinations. The zero value has none, and all are published here; under the mutex
// of window.
type topics struct {
	elsewhere func(topic string) bool // nobody here publishes events of the topic; nil: all are published here
	byName    map[string]*topic
	all       []*topic // in the order in which they came
	turn      int      // the topic that the last claim began with
}

// get returns the topic of a name.
func (s *topics) get(name string) *topic {
	t := s.byName[name]
	if t == nil {
		if s.byName == nil {
			s.byName = map[string]*topic{}
		}
		t = &topic{name: name, elsewhere: s.elsewhere != nil && s.elsewhere(name)}
		s.byName[name] = t
		s.all = append(s.all, t)
	}
	return t
}

// inTurn visits all topics. Each call begins with the next one, so that none comes last always.
func (s *topics) inTurn(visit func(*topic) bool) {
	s.turn++
	for i := range s.all {
		if !visit(s.all[(s.turn+i)%len(s.all)]) {
			return
		}
	}
}
