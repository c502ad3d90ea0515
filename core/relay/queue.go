package relay

// queue is a first-in, first-out list. The zero value is empty.
type queue[T any] struct {
	items []T
	head  int
}

func (q *queue[T]) len() int { return len(q.items) - q.head }

func (q *queue[T]) push(v T) { q.items = append(q.items, v) }

// first returns the item that pop would take. The queue must not be empty.
func (q *queue[T]) first() T { return q.items[q.head] }

func (q *queue[T]) pop() (v T, ok bool) {
	var zero T
	if q.head == len(q.items) {
		return zero, false
	}
	v = q.items[q.head]
	q.items[q.head] = zero
	q.head++
	switch {
	case q.head == len(q.items):
		q.items, q.head = q.items[:0], 0
	case q.head >= 1024 && q.head*2 >= len(q.items): // free the memory of popped items
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	return v, true
}
