package walrelay

import (
	"slices"
	"testing"
)

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
