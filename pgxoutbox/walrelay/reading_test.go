package walrelay

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"
	"unicode/utf8"
)

func TestReading(t *testing.T) {
	var r reading
	if r.inTx {
		t.Fatal("in a transaction at first")
	}
	r.begin(10)
	if !r.inTx || !r.next(position{10, 1}) || !r.next(position{10, 2}) {
		t.Fatal("the events of a transaction are not read")
	}

	// The connection is lost in the transaction. The next one begins with an earlier transaction.
	r.lost()
	if r.inTx {
		t.Error("in a transaction without a connection")
	}
	r.begin(5)
	if r.next(position{5, 1}) {
		t.Error("an earlier transaction is read again")
	}
	r.end(5)
	r.begin(10)
	if r.next(position{10, 1}) || r.next(position{10, 2}) {
		t.Error("an event is read twice")
	}
	if !r.next(position{10, 3}) {
		t.Error("the rest of the transaction is left out")
	}
	r.end(10)
	if r.inTx {
		t.Error("in a transaction after its end")
	}

	// A transaction that was read to its end has no more events.
	r.lost()
	r.begin(10)
	if r.next(position{10, 1}) || r.next(position{10, 4}) {
		t.Error("a whole transaction is read again")
	}
	r.end(10)
	r.begin(20)
	if !r.next(position{20, 1}) {
		t.Error("the next transaction is left out")
	}
}

// Headers are read the same with and without the parser of JSON.
func FuzzPlainHeaders(f *testing.F) {
	for _, text := range []string{
		`{}`, `{"a": "b"}`, `{"a": "", "b": "c, d: {}"}`, `{"a": 1}`, `{"a": "\""}`, `{"": "x"}`, `{"a": "b",}`,
		`{"a"}`, `{"a": "b", }`, `{"ü": "世界"}`, `{"a": null, "b": "c"}`, `{"a": "b"}}`, `{"a": {"b": "c"}}`,
		`{"a": "b", "c"`, `{`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if !json.Valid(text) || !utf8.Valid(text) { // PostgreSQL sends no other
			_, _ = names{}.plainHeaders(text)
			return
		}
		got, ok := names{}.plainHeaders(text)
		if !ok {
			return
		}
		want, err := headersOf(text)
		if err != nil || !maps.Equal(got, want) {
			t.Errorf("%q: got %v, want %v, %v", text, got, want, err)
		}
	})
}

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

func TestTopics(t *testing.T) {
	var s topics
	for range s.inTurn {
		t.Fatal("something is in an empty one")
	}
	if s.get("here").elsewhere {
		t.Error("a topic is published elsewhere though nobody says so")
	}
	s = topics{}
	asked := 0
	s.elsewhere = func(name string) bool {
		asked++
		return name == "b"
	}
	a, b, c := s.get("a"), s.get("b"), s.get("c")
	if s.get("b") != b || asked != 3 || a.elsewhere || !b.elsewhere || c.elsewhere {
		t.Errorf("asked %d times who publishes 3 topics: %t, %t, %t", asked, a.elsewhere, b.elsewhere, c.elsewhere)
	}
	if !slices.Equal(s.all, []*topic{a, b, c}) {
		t.Error("the topics are not in the order in which they came")
	}

	// Each topic is the first one in its turn.
	first := map[*topic]int{}
	for range 6 {
		got := slices.Collect(s.inTurn)
		first[got[0]]++
		if len(got) != 3 || !slices.Contains(got, a) || !slices.Contains(got, b) || !slices.Contains(got, c) {
			t.Fatalf("visited %d topics, want each of 3", len(got))
		}
	}
	if first[a] != 2 || first[b] != 2 || first[c] != 2 {
		t.Errorf("of 6 turns the three were first in %d, %d, %d", first[a], first[b], first[c])
	}
	for range s.inTurn {
		break // a visit may end early
	}
}
