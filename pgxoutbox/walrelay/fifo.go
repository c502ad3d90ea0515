package walrelay

// fifo is a queue. The zero value is empty.
type fifo[T any] struct {
	items []T
	head  int
}

func (q *fifo[T]) len() int { return len(q.items) - q.head }

func (q *fifo[T]) push(v T) {
	if q.head > 64 && q.head > len(q.items)/2 {
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	q.items = append(q.items, v)
}

// first returns the first item, or nil.
func (q *fifo[T]) first() *T {
	if q.len() == 0 {
		return nil
	}
	return &q.items[q.head]
}

// last returns the last item, or nil.
func (q *fifo[T]) last() *T {
	if q.len() == 0 {
		return nil
	}
	return &q.items[len(q.items)-1]
}

func (q *fifo[T]) pop() (v T) {
	var zero T
	v, q.items[q.head] = q.items[q.head], zero
	q.head++
	if q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
	}
	return v
}
