package walrelay

import (
	"slices"
	"testing"

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
