package core

import "testing"

func TestSuspectsTakeTurns(t *testing.T) {
	var s suspects
	if _, ok := s.next(0); ok {
		t.Fatal("a new suspects holds an item")
	}
	a, b, c := &item{id: RowID{1}}, &item{id: RowID{2}}, &item{id: RowID{3}}
	for _, it := range []*item{a, b, c} {
		s.queue.push(it)
	}
	if it, ok := s.next(5); !ok || it != a {
		t.Fatal("the first suspect does not go before the others")
	}
	if _, ok := s.next(5); ok {
		t.Fatal("two suspects in a row while other items wait")
	}
	if it, ok := s.next(5); !ok || it != b {
		t.Fatal("a suspect does not follow another item")
	}
	s.out = b
	for range 3 {
		if _, ok := s.next(0); ok {
			t.Fatal("a suspect beside the one that is out")
		}
	}
	s.out = nil
	if it, ok := s.next(0); !ok || it != c {
		t.Fatal("no suspect follows the end of the one before it")
	}
	if _, ok := s.next(0); ok {
		t.Error("a suspect is left at the end")
	}
}

// The publish of a suspect begins only under the claim under which it is written down.
func TestLeaseMayPublish(t *testing.T) {
	for _, c := range []struct {
		claimNo, begun int64
		suspect, may   bool
	}{{7, 0, false, true}, {7, 0, true, false}, {7, 6, true, false}, {7, 7, true, true}} {
		l := itemLease{claimNo: c.claimNo, begun: c.begun}
		if may := l.mayPublish(c.suspect); may != c.may {
			t.Errorf("claim %d, written down for %d, suspect %t: may publish: %t", c.claimNo, c.begun, c.suspect, may)
		}
	}
}
