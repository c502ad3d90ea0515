package walrelay

import "github.com/jackc/pglogrepl"

// spills is what is not known of open rows of events: those that an earlier reader of the slot may
// have written, and those of this process whose answer was lost. The zero value says that all is
// known; under the mutex of window.
type spills struct {
	upTo   pglogrepl.LSN // an earlier reader may have spilled events that committed up to here
	unsure int           // events for which event.unsure is set
}

// mayHave reports whether an earlier reader may have spilled an event that committed at commit. An
// event of a repair has the commit zero.
func (s *spills) mayHave(commit pglogrepl.LSN) bool { return s.upTo > 0 && commit <= s.upTo }

// doubt says that the open row of an event may have been written.
func (s *spills) doubt(e *event) {
	if !e.unsure {
		e.unsure = true
		s.unsure++
	}
}

// sure says that it is known whether the open row was written.
func (s *spills) sure(e *event) {
	if e.unsure {
		e.unsure = false
		s.unsure--
	}
}

// known reports whether it is known of each event whether it is in the table, if every event before
// done is answered.
func (s *spills) known(done pglogrepl.LSN) bool { return s.unsure == 0 && done >= s.upTo }
