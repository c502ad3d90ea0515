// Package turns lets one caller at a time work on a key, and gives its result to waiting callers.
package turns

import (
	"context"
	"errors"
	"sync"
)

// Turns has the keys that callers work on. The zero value is ready for use.
type Turns[K comparable, T any] struct {
	mu   sync.Mutex
	held map[K]*turn[T]
}

// turn is the turn of one caller. result may be read when ended is closed.
type turn[T any] struct {
	tag    any
	ended  chan struct{}
	result *T
}

// ErrTag: the caller that works on the key has another tag.
var ErrTag = errors.New("turns: the key is used for something else")

// Enter waits for the turn of a key, or for the end of ctx. The caller calls leave to end its turn,
// with a result for the waiting callers, or with nil: then the next one gets its turn. Only the
// first call of leave counts. If another caller has left a result meanwhile, Enter returns it, and
// there is no turn.
func (t *Turns[K, T]) Enter(ctx context.Context, key K, tag any) (leave func(*T), result *T, err error) {
	for {
		t.mu.Lock()
		other, busy := t.held[key]
		if !busy {
			own := &turn[T]{tag: tag, ended: make(chan struct{})}
			if t.held == nil {
				t.held = map[K]*turn[T]{}
			}
			t.held[key] = own
			t.mu.Unlock()
			var once sync.Once
			return func(result *T) { once.Do(func() { t.end(key, own, result) }) }, nil, nil
		}
		t.mu.Unlock()
		if other.tag != tag {
			return nil, nil, ErrTag
		}
		select {
		case <-other.ended:
			if other.result != nil {
				return nil, other.result, nil
			}
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		}
	}
}

func (t *Turns[K, T]) end(key K, own *turn[T], result *T) {
	t.mu.Lock()
	delete(t.held, key)
	t.mu.Unlock()
	own.result = result
	close(own.ended)
}
