package walrelay

import "testing"

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
