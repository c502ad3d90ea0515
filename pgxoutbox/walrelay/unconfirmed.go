package walrelay

import "github.com/jackc/pglogrepl"

// unconfirmed is what was read and may not be confirmed yet, in the order of the log. A position
// may be confirmed when every event before it is answered. The zero value is empty, and begins at
// the beginning of the log; under the mutex of window.
type unconfirmed struct {
	entries   fifo[entry]   // the first one is an event that is not answered
	done      pglogrepl.LSN // every event before it is answered
	answered  int           // events that were answered since the last call of confirmed
	repairing bool          // events of a repair are in entries, or are still to come
}

// entry is an event, or the end of what was read at some time.
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

// advance takes out what is answered, up to the first event that is not. It returns how many events
// it has taken out.
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
