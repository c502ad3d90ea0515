package walrelay

import (
	"slices"
	"testing"

	"github.com/jackc/pglogrepl"

	"github.com/ormoutbox/ormoutbox/core"
)

func TestLanes(t *testing.T) {
	var s lanes
	id, to := core.KeyID{1}, &topic{}
	if s.find(id) != nil {
		t.Fatal("something is in an empty one")
	}
	s.unspill([]core.KeyID{id})
	s.spill([]core.KeyID{id})
	l := s.find(id)
	if l == nil || !l.spilled || l.topic != nil {
		t.Fatal("a key with an open row is not known")
	}
	if s.get(id, to) != l || l.topic != to || s.get(id, &topic{}) != l || l.topic != to {
		t.Fatal("a key has two lanes, or another topic than that of its first event")
	}

	a, b, c := &event{}, &event{}, &event{}
	l.events = append(l.events, a, b, c)
	l.leave(b)
	l.leave(b)
	if !slices.Equal(l.events, []*event{a, c}) {
		t.Errorf("events %v after the second of three has left", l.events)
	}
}

// A lane is forgotten when nothing has to be known of it, and no sooner.
func TestLanesForget(t *testing.T) {
	id := core.KeyID{1}
	for what, change := range map[string]func(*lane){
		"an event is in the window":    func(l *lane) { l.events = []*event{{}} },
		"a row may be open":            func(l *lane) { l.spilled = true },
		"it is in a queue":             func(l *lane) { l.queued = true },
		"the relay has an event of it": func(l *lane) { l.busy = 1 },
	} {
		var s lanes
		l := s.get(id, nil)
		change(l)
		if s.tidy(l); s.find(id) != l {
			t.Errorf("a lane is forgotten although %s", what)
		}
		*l = lane{id: id}
		if s.tidy(l); s.find(id) != nil {
			t.Error("a lane is kept of which nothing has to be known")
		}
	}
}

func TestLanesSpilled(t *testing.T) {
	var s lanes
	var all []core.KeyID
	for i := range 4 {
		all = append(all, core.KeyID{byte(i + 1)})
	}
	s.spill(all[:3])
	s.get(all[3], nil).events = []*event{{}} // has no open row
	s.find(all[0]).events = []*event{{}}     // an event came meanwhile
	keys, n := s.spilled(10)
	slices.SortFunc(keys, func(a, b core.KeyID) int { return slices.Compare(a[:], b[:]) })
	if n != 3 || !slices.Equal(keys, all[1:3]) {
		t.Errorf("%d keys may have open rows, want 3; without an event: %v", n, keys)
	}
	if keys, n = s.spilled(1); n != 3 || len(keys) != 1 {
		t.Errorf("%d of %d keys, want 1 of 3", len(keys), n)
	}
	s.spilled(10)
	came := s.find(all[2]) // while the table is asked, an event comes and gets an open row
	e := &event{}
	s.enter(came, e)
	came.leave(e)
	s.unspill(all)
	if l := s.find(all[0]); l == nil || !l.spilled {
		t.Error("a key with an event has lost what is known of its rows")
	}
	if s.find(all[1]) != nil || s.find(all[2]) != came || !came.spilled || s.find(all[3]) == nil {
		t.Errorf("left: %v", s.byKey)
	}
	s.spilled(10)
	if s.unspill(all); s.find(all[2]) != nil {
		t.Error("a key without open rows is not forgotten with the next look")
	}
}

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
