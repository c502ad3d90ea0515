package core

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/ormoutbox/ormoutbox/core/internal/errtext"
)

// Recorder is embedded in a model to record events of it. An adapter writes the recorded events in
// the transaction that saves the model. The zero value is ready for use.
//
// An event gets its id when it is recorded, and stays recorded until its transaction is known to
// have committed. A rollback restores the Recorder's content from the beginning of the transaction,
// or of the savepoint. Events that were recorded before stay, with their ids. Events that were
// recorded within it are gone, as the rows are. So a transaction may be run again, whether the
// methods of the model are called before it or in it:
//
//	err := retry(func() error {
//		return db.Transaction(func(tx *gorm.DB) error {
//			payment.Settle() // records
//			return tx.Save(payment).Error
//		})
//	})
//
// The transaction takes the waiting events when a statement saves the model, even if the statement
// fails. Events that are recorded after the last such statement, or without one, stay recorded:
// save the model right after the method that records, or load it anew in each try.
//
// After an unknown outcome (ErrCommitUnknown) all these events stay recorded. If the transaction
// had committed, the next save is refused with ErrDuplicateEvent. If it had not, a next try would
// save the events of both tries: load the model anew first.
//
// A Recorder does not detect whether an adapter takes its events. Where the outbox was not
// installed on the database handle that saves the model, the row is written without the events and
// without an error. outboxtest.RequireNothingRecorded finds that in a test.
//
// Events belong to the value on which they were recorded, so keep models with recorded events
// behind a pointer. A copy of such a value may be another thing, or the same thing in another
// place. Examples are cp := *order, a loop variable, an element that append moved, and a
// constructor that returns a value. Saving a copy while events wait is refused with
// ErrRecorderCopied. Call Adopt on the copy if the model moved there, or Forget if the copy is
// another thing. A copy that is made when no event waits starts empty.
type Recorder struct {
	// a pointer to a pointer: fmt would follow a pointer to a struct, and print events with the
	// model
	ref **recorded
	n   int // the latest event that this value has seen
}

func (r *Recorder) log() *recorded {
	if r.ref == nil {
		return nil
	}
	return *r.ref
}

// recorded is the log that a Recorder and its copies share.
type recorded struct {
	mu     sync.Mutex
	writer *Recorder // the Recorder that records into the log; a copy begins a log of its own
	before Recorder  // the events that a copy had seen in the log of its original
	events []recordedEvent
	last   int // number of the latest event
	batch  int // number of the latest HandOver
}

type recordedEvent struct {
	event Event
	no    int
	mark  RecorderMark
	owner *Recorder
	batch int // the HandOver after which the event is in an open transaction; 0: it is in none
}

// RecorderMark is a moment between two calls of Record in this process. A later mark is greater.
// For adapters.
type RecorderMark uint64

var recorderClock atomic.Uint64

// MarkRecorders returns the present mark. It is for adapters, when a transaction begins.
func MarkRecorders() RecorderMark { return RecorderMark(recorderClock.Load()) }

// Record records an Event, or any value with an EventType method. Such a value becomes the Data of
// an event of that type. Any other value is recorded too and refused when the model is saved, so
// that the mistake is noticed. The first call on a zero Recorder must not run at the same time as
// another one.
func (r *Recorder) Record(events ...any) {
	l := r.log()
	if l == nil || l.writer != r {
		l = &recorded{writer: r, before: *r}
		*r = Recorder{ref: &l}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.undo(r.n)
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
			e = Event{Data: v} // it has no type: Publish refuses it
		}
		if e.ID == "" {
			e.ID = NewEventID()
		}
		l.last++
		r.n = l.last
		mark := RecorderMark(recorderClock.Add(1))
		l.events = append(l.events, recordedEvent{event: e, no: r.n, mark: mark, owner: r})
	}
}

// undo removes the events after event n: the model was set back to an earlier copy of itself.
func (l *recorded) undo(n int) {
	if n < l.last {
		l.keep(func(e *recordedEvent) bool { return e.no <= n || e.batch != 0 })
	}
}

func (l *recorded) keep(ok func(*recordedEvent) bool) {
	kept := l.events[:0]
	for i := range l.events {
		if ok(&l.events[i]) {
			kept = append(kept, l.events[i])
		}
	}
	clear(l.events[len(kept):])
	l.events = kept
}

// each calls fn with the events of each log that r has seen, oldest first. The log is locked
// meanwhile.
func (r *Recorder) each(fn func(l *recorded, e *recordedEvent)) {
	l := r.log()
	if l == nil {
		return
	}
	l.mu.Lock()
	before := l.before
	l.mu.Unlock()
	before.each(fn)

	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.events {
		if e := &l.events[i]; e.no <= r.n {
			fn(l, e)
		}
	}
}

// Recorded returns the events that are not yet known to have committed, oldest first. While they
// wait to be saved, the events of a value that r was copied from are among them.
func (r *Recorder) Recorded() []Event {
	if r == nil {
		return nil
	}
	events := []Event{}
	r.each(func(_ *recorded, e *recordedEvent) {
		if e.owner == r || e.batch == 0 {
			events = append(events, e.event)
		}
	})
	return events
}

// Forget removes every recorded event that was not handed over to a transaction. On a copy it
// removes the events that the copy took along; the original keeps its events.
func (r *Recorder) Forget() {
	l := r.log()
	if l == nil {
		return
	}
	r.each(func(_ *recorded, e *recordedEvent) {
		if e.owner == r && e.batch == 0 {
			e.owner = nil
		}
	})
	for at := l; at != nil; {
		at.mu.Lock()
		at.keep(func(e *recordedEvent) bool { return e.owner != nil })
		next := at.before.log()
		at.mu.Unlock()
		at = next
	}
	if l.writer != r {
		*r = Recorder{}
		return
	}
	l.mu.Lock()
	l.before = Recorder{}
	l.mu.Unlock()
}

// Adopt makes r, a copy, the owner of the events that were recorded on the original. Save r from
// then on, and the original no more. Adopt is for values that were moved, such as a model that a
// constructor returned by value.
func (r *Recorder) Adopt() {
	r.each(func(_ *recorded, e *recordedEvent) {
		if e.batch == 0 {
			e.owner = r
		}
	})
}

// UndoRecorded returns a function that removes the events that were recorded on r after a mark, up
// to now. It is for adapters, at each statement that saves the model of r: its transaction calls
// the function when changes are rolled back, with the mark at which they began, on any goroutine.
// The call may come after the next try has recorded events.
func UndoRecorded(r *Recorder) func(to RecorderMark) {
	var logs []*recorded
	for l := r.log(); l != nil; {
		logs = append(logs, l)
		l.mu.Lock()
		next := l.before.log()
		l.mu.Unlock()
		l = next
	}
	now := MarkRecorders()
	return func(to RecorderMark) {
		for _, l := range logs {
			l.mu.Lock()
			l.keep(func(e *recordedEvent) bool { return e.owner != r || e.mark <= to || e.mark > now })
			l.mu.Unlock()
		}
	}
}

func (r *Recorder) outboxRecorder() *Recorder { return r }

// HandOver takes the recorded events that no transaction has yet. The adapter publishes them in tx
// and then calls ended with the outcome that tx reports, or with RolledBack when Publish failed. tx
// must be tracked: otherwise nothing reports whether the events are still to be stored. ended may
// be called on any goroutine. If CheckRecorder returns an error, HandOver returns it and takes no
// event. For adapters.
func (r *Recorder) HandOver() (events []Event, ended func(Outcome), err error) {
	if err := CheckRecorder(r); err != nil {
		return nil, func(Outcome) {}, err
	}
	type part struct {
		log   *recorded
		batch int
	}
	var parts []part
	if r != nil {
		r.each(func(l *recorded, e *recordedEvent) {
			if e.owner != r || e.batch != 0 {
				return
			}
			if len(parts) == 0 || parts[len(parts)-1].log != l {
				l.batch++
				parts = append(parts, part{l, l.batch})
			}
			e.batch = l.batch
			events = append(events, e.event)
		})
	}
	return events, func(o Outcome) {
		for _, p := range parts {
			p.log.end(p.batch, o)
		}
	}, nil
}

func (l *recorded) end(batch int, o Outcome) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.keep(func(e *recordedEvent) bool {
		if e.batch != batch {
			return true
		}
		e.batch = 0 // available again for the next try
		return o != Committed
	})
}

// RecorderOf returns the Recorder that model embeds. For adapters.
func RecorderOf(model any) (r *Recorder, ok bool) {
	m, ok := model.(interface{ outboxRecorder() *Recorder })
	if !ok {
		return nil, false
	}
	defer func() {
		if recover() != nil { // the Recorder is in an embedded pointer that is nil
			r, ok = nil, false
		}
	}()
	r = m.outboxRecorder()
	return r, r != nil
}

// CheckRecorder returns an error wrapping ErrRecorderCopied if r has waiting events that were
// recorded on the value it was copied from. For adapters, before they save the model.
func CheckRecorder(r *Recorder) error {
	if r == nil {
		return nil
	}
	var foreign *Event
	r.each(func(_ *recorded, e *recordedEvent) {
		if e.owner != r && e.batch == 0 && foreign == nil {
			foreign = &Event{ID: e.event.ID, Type: e.event.Type}
		}
	})
	if foreign == nil {
		return nil
	}
	return fmt.Errorf("%w: %q (%s) belongs to the value on which it was recorded: save that value by its pointer, "+
		"or call on the copy Adopt, if the model moved there, or Forget, if the copy is another thing",
		ErrRecorderCopied, errtext.Clip(foreign.Type, 64), foreign.ID)
}
