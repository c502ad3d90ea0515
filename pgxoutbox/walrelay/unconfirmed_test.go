package walrelay

import (
	"testing"

	"github.com/jackc/pglogrepl"
)

func TestUnconfirmed(t *testing.T) {
	var u unconfirmed
	want := func(events int, done pglogrepl.LSN, answered int) {
		t.Helper()
		if n := u.advance(); n != events || u.done != done || u.answered != answered {
			t.Fatalf("%d events left, done %d, %d answered; want %d, %d, %d", n, u.done, u.answered, events, done,
				answered)
		}
	}
	want(0, 0, 0)
	a, b, c := &event{}, &event{}, &event{}
	u.add(a)
	u.add(b)
	u.end(10)
	u.add(c)
	u.end(20)
	want(0, 0, 0)
	c.state = eventAnswered // events are answered in any order
	b.state = eventAnswered
	want(0, 0, 0)
	a.state = eventMoving
	want(0, 0, 0)
	a.state = eventAnswered
	want(3, 20, 3)
	u.confirmed(2)
	want(0, 20, 1)

	// The end that counts is the one before the first event that is not answered.
	d := &event{state: eventAnswered}
	u.add(d)
	u.end(30)
	u.end(35) // the server has sent nothing since
	u.add(&event{state: eventClaimed})
	u.end(40)
	want(1, 35, 2)
}

// An end never takes a position back, and needs no place if it says nothing new.
func TestUnconfirmedEnds(t *testing.T) {
	u := unconfirmed{done: 50}
	u.end(40)
	u.end(50)
	if u.entries.len() != 0 {
		t.Error("an end is kept that was confirmed before")
	}
	e := &event{}
	u.add(e)
	u.end(45) // the log is read again from an earlier position
	u.end(60)
	u.end(55)
	if n := u.entries.len(); n != 2 {
		t.Errorf("%d entries for an event and the ends behind it, want 2", n)
	}
	e.state = eventAnswered
	if u.advance(); u.done != 60 {
		t.Errorf("done %d, want 60", u.done)
	}
	u.add(&event{state: eventAnswered})
	u.end(55)
	if u.advance(); u.done != 60 {
		t.Errorf("done %d: it goes back", u.done)
	}
}

// A repair is over when its last event is answered. Ends before that are not those of the log
// behind it.
func TestUnconfirmedRepair(t *testing.T) {
	u := unconfirmed{repairing: true}
	e := &event{}
	u.add(e)
	u.end(10)
	if u.advance(); !u.repairing {
		t.Error("the repair is over before its events are entered")
	}
	u.endRepair()
	u.end(20)
	if u.advance(); !u.repairing || u.done != 0 {
		t.Errorf("repairing %t, done %d, and an event is not answered", u.repairing, u.done)
	}
	e.state = eventAnswered
	if u.advance(); u.repairing || u.done != 20 {
		t.Errorf("repairing %t, done %d, and all events are answered", u.repairing, u.done)
	}
}
