package walrelay

import (
	"slices"
	"testing"
	"time"
)

func TestFIFO(t *testing.T) {
	var q fifo[int]
	if q.len() != 0 || q.first() != nil || q.last() != nil {
		t.Fatal("something is in an empty one")
	}
	pushed, popped := 0, 0
	for i := range 1000 {
		for range 3 {
			pushed++
			q.push(pushed)
		}
		for range 2 + i%3 {
			if q.len() == 0 {
				break
			}
			first, last := *q.first(), *q.last()
			popped++
			if v := q.pop(); v != popped || first != popped || last != pushed {
				t.Fatalf("took %d between %d and %d, want %d between itself and %d", v, first, last, popped, pushed)
			}
		}
	}
	if q.len() != pushed-popped {
		t.Errorf("%d are left, want %d", q.len(), pushed-popped)
	}
	*q.last() = -1 // an item may be changed where it is
	for q.len() > 1 {
		q.pop()
	}
	if v := q.pop(); v != -1 || q.first() != nil {
		t.Errorf("took %d, want the item that was changed", v)
	}
}

// The memory of a queue is that of the items that wait, and not of all that ever came.
func TestFIFOMemory(t *testing.T) {
	var q fifo[*int]
	q.push(new(int))
	for range 100_000 {
		q.push(new(int))
		q.pop()
	}
	if n := cap(q.items); n > 1024 {
		t.Errorf("a queue of one item has room for %d", n)
	}
	kept := 0
	for _, p := range q.items[:cap(q.items)] {
		if p != nil {
			kept++
		}
	}
	if kept != q.len() {
		t.Errorf("%d items are kept from the garbage collector, and %d wait", kept, q.len())
	}
}

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

func TestLater(t *testing.T) {
	now := time.Now()
	due := func(e *event) bool { return !e.due.After(now) }
	var q later
	if _, ok := q.next(now); ok || q.take(due) != nil {
		t.Fatal("something is in an empty one")
	}
	key := &lane{}
	first := &event{due: now.Add(time.Second), lane: key}
	second := &event{due: now.Add(time.Minute)}
	accepted := &event{due: now.Add(time.Hour)}
	q.push(second)
	q.push(first)
	q.push(accepted)
	if d, ok := q.next(now); !ok || d != time.Second || !key.queued {
		t.Errorf("the next one is due in %s, want 1s; key queued %t", d, key.queued)
	}
	if got := q.take(due); got != nil {
		t.Errorf("took %v before they are due", got)
	}

	accepted.state = eventAnswered // the relay had published it after all
	now = now.Add(2 * time.Second)
	if d, ok := q.next(now); !ok || d != 0 {
		t.Errorf("the next one is due in %s, want now", d)
	}
	if got := q.take(due); !slices.Equal(got, []*event{first, accepted}) || key.queued {
		t.Errorf("took %v, want the one that is due and the one that was accepted; key queued %t", got, key.queued)
	}
	if d, ok := q.next(now); !ok || d != 58*time.Second {
		t.Errorf("the next one is due in %s, want 58s", d)
	}
}
