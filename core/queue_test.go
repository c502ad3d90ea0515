package core

import "testing"

func TestQueue(t *testing.T) {
	var q queue[int]
	if v, ok := q.pop(); ok || v != 0 || q.len() != 0 {
		t.Fatal("a new queue holds something")
	}
	// Pushes and pops alternate, so that the queue frees what was popped while others wait.
	next := 0
	for i := range 10_000 {
		q.push(i)
		if i%3 == 0 {
			if first := q.first(); first != next {
				t.Fatalf("first is %d, want %d", first, next)
			}
			if v, ok := q.pop(); !ok || v != next {
				t.Fatalf("popped %d %t, want %d", v, ok, next)
			}
			next++
		}
	}
	for ; q.len() > 0; next++ {
		if v, ok := q.pop(); !ok || v != next {
			t.Fatalf("popped %d %t, want %d", v, ok, next)
		}
		if len(q.items) > 2*q.len()+1024 {
			t.Fatalf("%d places are kept for %d values", len(q.items), q.len())
		}
	}
	equal(t, next, 10_000, "popped values")
}

// A queue does not point to a popped value, so that its memory can be freed.
func TestQueueForgetsWhatWasPopped(t *testing.T) {
	var q queue[*int]
	for range 5 {
		q.push(new(int))
	}
	q.pop()
	q.pop()
	for i, v := range q.items[:cap(q.items)] {
		equal(t, v != nil, (i >= 2 && i < 5), "place %d holds a value", i)
	}
}
