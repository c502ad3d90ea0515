package walrelay

import "testing"

func TestSpills(t *testing.T) {
	var s spills
	if !s.known(0) || s.mayHave(0) || s.mayHave(10) {
		t.Fatal("something is not known at first")
	}
	s.upTo = 10
	if !s.mayHave(0) || !s.mayHave(10) || s.mayHave(11) {
		t.Error("an earlier reader may have spilled what committed up to 10, and nothing later")
	}
	if s.known(9) || !s.known(10) {
		t.Error("known is not what is answered up to 10")
	}

	// Each event counts once, however often its answer is lost.
	a, b := &event{}, &event{}
	s.sure(a)
	s.doubt(a)
	s.doubt(a)
	s.doubt(b)
	if s.known(10) || !a.unsure || !b.unsure {
		t.Error("two events are unsure, and all is known")
	}
	s.sure(a)
	s.sure(a)
	if s.known(10) || a.unsure {
		t.Error("one event is unsure, and all is known")
	}
	s.sure(b)
	if !s.known(10) || b.unsure {
		t.Error("no event is unsure, and not all is known")
	}
}
