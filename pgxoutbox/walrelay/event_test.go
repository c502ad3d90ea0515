package walrelay

import "testing"

// A key counts its events that are claimed or moving, each once.
func TestEventIsTaken(t *testing.T) {
	key := &lane{}
	a, b := &event{lane: key}, &event{lane: key}
	for _, step := range []struct {
		what  string
		do    func()
		state eventState // of a
		busy  int
	}{
		{"given back though it waits", a.giveBack, eventWaiting, 0},
		{"claimed", func() { a.take(eventClaimed) }, eventClaimed, 1},
		{"another one is moved", func() { b.take(eventMoving) }, eventClaimed, 2},
		{"refused", func() { a.take(eventMoving) }, eventMoving, 2},
		{"the refusal is not written", func() { a.take(eventClaimed) }, eventClaimed, 2},
		{"given back", a.giveBack, eventWaiting, 1},
		{"given back again", a.giveBack, eventWaiting, 1},
		{"the other one is given back", b.giveBack, eventWaiting, 0},
	} {
		if step.do(); a.state != step.state || key.busy != step.busy {
			t.Fatalf("%s: state %d and %d busy, want %d and %d", step.what, a.state, key.busy, step.state, step.busy)
		}
	}
	free := &event{} // has no key that counts it
	free.take(eventClaimed)
	if free.giveBack(); free.state != eventWaiting {
		t.Errorf("an event without a key is in state %d", free.state)
	}
}
