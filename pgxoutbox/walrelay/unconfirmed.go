package walrelay

import "github.com/jackc/pglogrepl"

// unconfirmed has the read positions that may not be confirmed yet, in the order of the log. A
// position may be confirmed when every event before it is answered. The zero value is empty, and
// begins at the beginning of the log; under the mutex of window.
type unconfirmed struct {
	entries   fifo[entry]   // the first one is an event that is not answered
	done      pglogrepl.LSN // every event before it is answered
	answered  int           // events that were answered since the last call of confirmed
	repairing bool          // events of a repair are in entries, or are still to come
}

// entry is an event, or the end of the read part at some time.
type entry struct {
	event    *event
	end      pglogrepl.LSN // of an entry without an event
	repaired bool          // the events of a repair end here
	passed   func()        // called when every event before it is answered; nil: nobody asks
}

// add enters an event.
func (u *unconfirmed) add(e *event) { u.entries.push(entry{event: e}) }

// end notes that everything that was read so far is before a position.
func (u *unconfirmed) end(at pglogrepl.LSN) {
	if last := u.entries.last(); last != nil && last.event == nil && !last.repaired && last.passed == nil {
		last.end = max(last.end, at)
	} else if last != nil || at > u.done {
		u.entries.push(entry{end: at})
	}
}

// endRepair notes that all events of a repair were entered.
func (u *unconfirmed) endRepair() { u.entries.push(entry{repaired: true}) }

// advance removes answered entries, up to the first unanswered event. It returns how many events it
// has taken out.
func (u *unconfirmed) advance() (events int) {
	for {
		s := u.entries.first()
		if s == nil || s.event != nil && s.event.state != eventAnswered {
			u.answered += events
			return events
		}
		switch {
		case s.event != nil:
			events++
		case s.repaired:
			u.repairing = false
		case s.passed != nil:
			s.passed()
		default:
			u.done = max(u.done, s.end)
		}
		u.entries.pop()
	}
}

// confirmed takes back events that were counted as answered, because they are confirmed.
func (u *unconfirmed) confirmed(answered int) { u.answered -= answered }

// spills has the events whose open rows are in doubt: an earlier reader of the slot, or this
// process without getting an answer, may have written them. The zero value has no doubts; under the
// mutex of window.
type spills struct {
	upTo   pglogrepl.LSN // an earlier reader may have spilled events that committed up to here
	unsure int           // events for which event.unsure is set
}

// mayHave reports whether an earlier reader may have spilled an event that committed at commit. An
// event of a repair has the commit zero.
func (s *spills) mayHave(commit pglogrepl.LSN) bool { return s.upTo > 0 && commit <= s.upTo }

// doubt records that the open row of an event may have been written.
func (s *spills) doubt(e *event) {
	if !e.unsure {
		e.unsure = true
		s.unsure++
	}
}

// sure ends doubt.
func (s *spills) sure(e *event) {
	if e.unsure {
		e.unsure = false
		s.unsure--
	}
}

// known reports whether it is known of each event whether it is in the table, if every event before
// done is answered.
func (s *spills) known(done pglogrepl.LSN) bool { return s.unsure == 0 && done >= s.upTo }
