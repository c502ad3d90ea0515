package walrelay

// signals wake the goroutines that wait for the window. A signal that nobody has taken yet stands
// for all later ones of its kind. The zero value wakes nobody; under the mutex of window, except
// for receiving from the channels.
type signals struct {
	room  chan struct{} // there is room again
	work  chan struct{} // there is something to ask the table
	ready chan struct{} // there is something to claim

	entering bool // an event of the log is being entered, and more may be at hand
	unsaid   int  // events that were entered since ready was signalled
}

func newSignals() signals {
	return signals{room: make(chan struct{}, 1), work: make(chan struct{}, 1), ready: make(chan struct{}, 1)}
}

// mostUnsaid is how many events are entered before the relay hears of them, while more are at hand.
const mostUnsaid = 64

// claimable wakes the relay, because there is something to claim. While the reader enters events of
// the log, it wakes the relay only if there are many; flush does it for the rest.
func (s *signals) claimable() {
	if s.entering {
		if s.unsaid++; s.unsaid < mostUnsaid {
			return
		}
	}
	s.unsaid = 0
	signal(s.ready)
}

// flush wakes the relay if it has not heard of all events.
func (s *signals) flush() {
	if s.unsaid > 0 {
		s.unsaid = 0
		signal(s.ready)
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
