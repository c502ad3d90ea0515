package core

import (
	"slices"
	"testing"
)

func TestMarks(t *testing.T) {
	var m marks
	if m.len() != 0 || len(m.take()) != 0 {
		t.Fatal("new marks hold an item")
	}
	acked := []*item{{state: itemAcked, path: PathHot}, {state: itemAcked, path: PathHot}}
	claimed := &item{state: itemAcked, path: PathCold}
	failed, released := &item{state: itemFailed, path: PathHot}, &item{state: itemReleasing, path: PathHot}
	for _, it := range []*item{released, failed, acked[0]} {
		equal(t, m.add(it), 1, "%s: marks of its kind that wait", it.state)
	}
	if n := m.add(claimed); n != 2 || m.doneCold != 1 {
		t.Errorf("%d acknowledged wait, %d of them claimed; want 2 and 1", n, m.doneCold)
	}
	if m.len() != 4 || m.held != 2 {
		t.Fatalf("%d wait, %d hold publishing back; want 4 and 2", m.len(), m.held)
	}
	taken := m.take()
	if want := []*item{acked[0], claimed, failed, released}; !slices.Equal(taken, want) || m.len() != 0 ||
		m.held != 2 || m.doneCold != 0 {
		t.Fatalf("took %v: acknowledgements and failures come before releases", taken)
	}
	m.add(acked[1])
	m.putBack(taken)
	equal(t, m.doneCold, 1, "claimed marks that wait")
	if got := m.take(); !slices.Equal(got, []*item{acked[0], claimed, acked[1], failed, released}) || m.held != 3 {
		t.Fatalf("took %v, %d hold back: what was taken before comes first", got, m.held)
	}
	for _, it := range []*item{acked[0], acked[1], failed} {
		if !m.ended(it) {
			t.Errorf("%s held nobody back", it.state)
		}
	}
	acked[0].mark.tries = 1 // the mark was postponed, and is written later
	if m.ended(acked[0]) || m.ended(claimed) || m.ended(released) || m.held != 0 {
		t.Errorf("%d hold publishing back at the end", m.held)
	}
}
