package core

import "sync"

// notices are calls of the user's callbacks. They are noted under a lock and made without it. One
// goroutine at a time makes the calls for all. Otherwise an observer could hear of an older state
// of a destination last. The zero value is empty.
type notices struct {
	pending []func()
	telling bool // a goroutine makes the calls
}

func (n *notices) add(call func()) { n.pending = append(n.pending, call) }

// wait reports whether there are calls that no goroutine makes.
func (n *notices) wait() bool { return len(n.pending) > 0 && !n.telling }

// unlock unlocks mu and makes the calls.
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
