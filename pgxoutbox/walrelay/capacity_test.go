package walrelay

import (
	"testing"
	"time"
)

func TestCapacity(t *testing.T) {
	now := time.Now()
	var zero capacity
	if zero.look(now) {
		t.Error("a window without limits has room")
	}
	c := capacity{maxEvents: 2, maxBytes: 100}
	c.enter(99)
	if !c.look(now) {
		t.Error("no room below both limits")
	}
	c.enter(1000) // the last event may be a big one
	if c.look(now) {
		t.Error("room above both limits")
	}
	c.free(1000)
	if c.look(now) {
		t.Error("room for a third event: an answered event counts until it leaves")
	}
	c.leave(1)
	if !c.look(now) {
		t.Error("no room although an event has left")
	}
	c.enter(1)
	c.leave(1)
	if c.look(now) {
		t.Error("room above the limit of bytes")
	}
	c.free(1)
	c.free(99)
	c.leave(1)
	if c.events != 0 || c.bytes != 0 || c.full() {
		t.Errorf("not empty at the end: %+v", c)
	}
}

func TestCapacityStalled(t *testing.T) {
	now := time.Now()
	c := capacity{maxEvents: 1, maxBytes: 100}
	c.enter(1)
	if c.stalled(now, time.Minute) {
		t.Error("stalled before the reader has looked for room")
	}
	c.look(now)
	c.look(now.Add(time.Minute - 1)) // it is full since the first look
	if c.stalled(now.Add(time.Minute-1), time.Minute) {
		t.Error("stalled before the limit")
	}
	now = now.Add(time.Minute)
	if !c.stalled(now, time.Minute) {
		t.Error("not stalled at the limit")
	}
	if c.stalled(now.Add(time.Minute-1), time.Minute) || !c.stalled(now.Add(time.Minute), time.Minute) {
		t.Error("the time does not begin anew")
	}
	c.leave(1)
	if c.stalled(now.Add(time.Hour), time.Minute) {
		t.Error("stalled although there is room")
	}
	c.look(now.Add(time.Hour))
	c.enter(1)
	c.look(now.Add(time.Hour))
	if c.stalled(now.Add(time.Hour+time.Minute-1), time.Minute) {
		t.Error("a time with room does not count")
	}
}

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
