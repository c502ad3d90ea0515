package walrelay

import "testing"

func TestSignals(t *testing.T) {
	var zero signals
	zero.claimable()
	zero.flush() // wakes nobody, and does not wait

	s := newSignals()
	ready := func() bool {
		select {
		case <-s.ready:
			return true
		default:
			return false
		}
	}
	s.flush()
	if ready() {
		t.Error("the relay is woken for nothing")
	}
	s.claimable()
	s.claimable()
	if !ready() || ready() {
		t.Error("two events are not one signal")
	}

	// While the log is read, the relay hears of many events at once.
	s.entering = true
	for n := 1; n <= 2*mostUnsaid; n++ {
		s.claimable()
		if woken := ready(); woken != (n%mostUnsaid == 0) {
			t.Fatalf("woken %t after %d events, want it after each %d", woken, n, mostUnsaid)
		}
	}
	s.claimable()
	s.flush()
	if !ready() {
		t.Error("the relay does not hear of the rest")
	}
	s.flush()
	if ready() {
		t.Error("the relay hears of the rest twice")
	}

	// An event that does not come from the log is said at once, and the others with it.
	s.claimable()
	s.entering = false
	s.claimable()
	if !ready() {
		t.Error("the relay does not hear of an event at once")
	}
	s.flush()
	if ready() {
		t.Error("the relay hears of an event again")
	}
	if len(s.room)+len(s.work) > 0 {
		t.Error("another goroutine is woken")
	}
}
