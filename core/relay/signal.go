package relay

// signal makes one goroutine look at what has changed. A signal that was not taken yet stands for
// further ones. A nil signal does nothing.
type signal chan struct{}

func newSignal() signal { return make(signal, 1) }

func (s signal) give() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// signals has a signal for each goroutine that the state wakes.
type signals struct {
	poll     signal // to the poller: a poll or a look is asked for
	room     signal // to the poller: there is room
	marks    signal // to the writer
	settings signal // to the follower of operators
	beat     signal // to the heartbeat: to come soon
}

func newSignals() signals {
	return signals{poll: newSignal(), room: newSignal(), marks: newSignal(), settings: newSignal(), beat: newSignal()}
}
