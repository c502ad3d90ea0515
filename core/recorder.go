package core

import (
	"fmt"
	"sync"
)

// Recorder is embedded in a model to record what happened to it; an adapter writes the recorded events in the transaction that
// stores the model. The zero value is ready for use. Copies of a Recorder share their events.
//
// An event gets its id when it is recorded and stays recorded until its transaction is known to have committed: a transaction
// that is run again publishes it again under the same id, and nothing is doubled.
type Recorder struct{ state *recorded }

type recorded struct {
	mu     sync.Mutex
	events []recordedEvent
	batch  int // of the latest HandOver
}

type recordedEvent struct {
	event Event
	batch int // the HandOver after which it is in a transaction whose outcome is not known yet; 0: in none
}

// Record notes that something happened: an Event, or any value with an EventType method, which becomes the Data of an event
// of that type. A value that is neither is recorded too and refused when the model is stored, so that it cannot be
// overlooked. Record is not safe for use by several goroutines at once with the first call on a zero Recorder.
func (r *Recorder) Record(events ...any) {
	if r.state == nil {
		r.state = &recorded{}
	}
	r.state.mu.Lock()
	defer r.state.mu.Unlock()
	for _, v := range events {
		var e Event
		switch v := v.(type) {
		case Event:
			e = v
		case *Event:
			if v != nil {
				e = *v
			}
		case EventTyper:
			e = Event{Type: v.EventType(), Data: v}
		default:
			e = Event{Data: v} // has no type: refused by Publish
		}
		if e.ID == "" {
			e.ID = NewEventID()
		}
		r.state.events = append(r.state.events, recordedEvent{event: e})
	}
}

// Recorded returns the events that are not yet known to have committed, oldest first.
func (r *Recorder) Recorded() []Event {
	if r == nil || r.state == nil {
		return nil
	}
	r.state.mu.Lock()
	defer r.state.mu.Unlock()
	events := make([]Event, len(r.state.events))
	for i, e := range r.state.events {
		events[i] = e.event
	}
	return events
}

// Forget drops everything that is recorded and not handed over to a transaction.
func (r *Recorder) Forget() {
	if r.state == nil {
		return
	}
	r.state.mu.Lock()
	defer r.state.mu.Unlock()
	kept := r.state.events[:0]
	for _, e := range r.state.events {
		if e.batch != 0 {
			kept = append(kept, e)
		}
	}
	clear(r.state.events[len(kept):])
	r.state.events = kept
}

func (r *Recorder) outboxRecorder() *Recorder { return r }

// RecorderOf returns the Recorder that model embeds. For adapters.
func RecorderOf(model any) (*Recorder, bool) {
	m, ok := model.(interface{ outboxRecorder() *Recorder })
	if !ok {
		return nil, false
	}
	r := m.outboxRecorder()
	return r, r != nil
}

// HandOver takes the recorded events that no transaction has yet. The adapter publishes them in tx and then calls settle
// with the outcome that tx reports (Committed for an untracked transaction, RolledBack when Publish failed). For adapters.
func (r *Recorder) HandOver() (events []Event, settle func(Outcome)) {
	if r == nil || r.state == nil {
		return nil, func(Outcome) {}
	}
	s := r.state
	s.mu.Lock()
	defer s.mu.Unlock()
	s.batch++
	batch := s.batch
	for i := range s.events {
		if s.events[i].batch == 0 {
			s.events[i].batch = batch
			events = append(events, s.events[i].event)
		}
	}
	if len(events) == 0 {
		return nil, func(Outcome) {}
	}
	return events, func(o Outcome) { s.settle(batch, o) }
}

func (s *recorded) settle(batch int, o Outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kept := s.events[:0]
	for _, e := range s.events {
		if e.batch == batch {
			if o == Committed {
				continue
			}
			e.batch = 0 // there again for the next try
		}
		kept = append(kept, e)
	}
	clear(s.events[len(kept):])
	s.events = kept
}

// String keeps payloads out of logs that print the model.
func (r Recorder) String() string { return fmt.Sprintf("%d recorded events", len(r.Recorded())) }
