package core

import (
	"testing"
	"time"
)

func TestPostponed(t *testing.T) {
	var a postponed
	now := time.Now()
	x, y := &item{id: RowID{1}}, &item{id: RowID{2}}
	if _, ok := a.next(); ok {
		t.Fatal("a new postponed holds an item")
	}
	a.add(x, now, 0.5)
	for range 9 {
		y.mark.tries++
	}
	a.add(y, now, 0.5)
	if at, ok := a.next(); !ok || !at.Equal(now.Add(postponeFirst)) {
		t.Fatalf("next at %s, %t; want after %s", at.Sub(now), ok, postponeFirst)
	}
	if got := a.take(now, false); len(got) != 0 {
		t.Fatalf("%d taken before they are due", len(got))
	}
	if got := a.take(now.Add(postponeFirst), false); len(got) != 1 || got[0] != x {
		t.Fatalf("took %v, want the first", got)
	}
	if at, _ := a.next(); at.After(now.Add(postponeMost)) {
		t.Errorf("waits %s, longer than %s", at.Sub(now), postponeMost)
	}
	if got := a.take(now, true); len(got) != 1 || got[0] != y {
		t.Fatalf("took %v, want all", got)
	}

	told := 0
	for range 600 {
		if a.add(x, now, 0) {
			told++
		}
	}
	if told != 3 { // the tries 8, 64 and 512
		t.Errorf("told %d times in 600 tries, want 3", told)
	}
}
