package core

import "sync"

// notices are calls of the user's callbacks, noted under a lock and made without it. One goroutine
// at a time makes them, for all: else the last that an observer hears of a destination could be how
// it was before. The zero value is empty.
type notices struct {
	pending []func()
	telling bool // somebody makes them
}

func (n *notices) add(call func()) { n.pending = append(n.pending, call) }

// wait reports whether there are some that nobody makes.
func (n *notices) wait() bool { return len(n.pending) > 0 && !n.telling }

// unlock gives mu up and makes the calls.
func (n *notices) unlock(mu *sync.Mutex) {
	if !n.wait() {
		mu.Unlock()
		return
	}
	n.telling = true
	defer func() {
		n.telling = false
		mu.Unlock()
	}()
	for len(n.pending) > 0 {
		calls := n.pending
		n.pending = nil
		mu.Unlock()
		func() {
			defer mu.Lock() // also when a callback panics
			for _, call := range calls {
				call()
			}
		}()
	}
}
