package walrelay

import "testing"

func TestWaiting(t *testing.T) {
	var q waiting
	if q.len(true) != 0 || q.len(false) != 0 {
		t.Fatal("something is in an empty one")
	}
	a, b := &lane{}, &lane{}
	free := &event{}
	q.push(&event{lane: a})
	q.push(free)
	q.push(&event{lane: b})
	if q.len(true) != 2 || q.len(false) != 1 || !a.queued || !b.queued {
		t.Fatalf("%d keys and %d events wait, want 2 and 1; queued %t, %t", q.len(true), q.len(false), a.queued,
			b.queued)
	}
	if l := q.popLane(); l != a || a.queued || !b.queued {
		t.Fatalf("not the first key, or it still counts as queued: %t, %t", a.queued, b.queued)
	}
	q.pushLane(a)
	if q.popLane() != b || q.popLane() != a || a.queued || b.queued || q.len(true) != 0 {
		t.Error("the keys do not come in the order in which they were added")
	}
	if q.free.pop() != free || q.len(false) != 0 {
		t.Error("the event without a key is lost")
	}
}
