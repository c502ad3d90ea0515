// Package guard gives goroutines one way to a value that they share.
package guard

import (
	"sync"
	"time"
)

// Guard owns a value. Do, Ask and Await are the only ways to it, and one goroutine at a time has
// it. The functions that they run change the value and note effects to run outside: see Effects.
type Guard[S any] struct {
	mu      sync.Mutex
	value   *S
	effects Effects
}

// New returns the guard of of's result. Nothing else may keep the value.
func New[S any](of func(*Effects) *S) *Guard[S] {
	g := &Guard[S]{}
	g.effects.work.L = &g.mu
	g.value = of(&g.effects)
	return g
}

// Do runs fn with the value, and then makes the calls that were noted.
func (g *Guard[S]) Do(fn func(*S)) {
	g.mu.Lock()
	defer g.unlock()
	fn(g.value)
}

// Ask is Do with a result.
func Ask[S, T any](g *Guard[S], fn func(*S) T) T {
	g.mu.Lock()
	defer g.unlock()
	return fn(g.value)
}

// Await runs fn until it returns true: at once, and whenever the goroutine is woken.
func (g *Guard[S]) Await(fn func(*S) (done bool)) {
	g.mu.Lock()
	defer g.unlock()
	for !fn(g.value) {
		if g.effects.waiting() { // nobody would make these calls while all goroutines wait
			g.unlock()
			g.mu.Lock()
			continue
		}
		g.effects.work.Wait()
	}
}

func (g *Guard[S]) unlock() { g.effects.unlock(&g.mu) }

// Effects are actions that a function requests while it changes the value, and that run outside the
// lock. They are used with the value alone.
//
// The calls are made without the lock, in the order in which they were noted. One goroutine at a
// time makes them for all, so that an observer gets states in their order.
type Effects struct {
	work    sync.Cond
	calls   []func()
	calling bool // a goroutine makes the calls
}

// Call notes a call.
func (e *Effects) Call(fn func()) { e.calls = append(e.calls, fn) }

// WakeOne wakes a goroutine in Await.
func (e *Effects) WakeOne() { e.work.Signal() }

// WakeAll wakes all goroutines in Await.
func (e *Effects) WakeAll() { e.work.Broadcast() }

// WakeOneAfter wakes a goroutine in Await when d is over. t is the result of the last call for the
// same purpose, or nil: its wake-up is put off.
func (e *Effects) WakeOneAfter(t *time.Timer, d time.Duration) *time.Timer {
	if t != nil {
		t.Reset(d)
		return t
	}
	return time.AfterFunc(d, func() {
		e.work.L.Lock()
		defer e.work.L.Unlock()
		e.work.Signal()
	})
}

// waiting reports whether there are calls that no goroutine makes.
func (e *Effects) waiting() bool { return len(e.calls) > 0 && !e.calling }

// unlock unlocks mu and makes the calls.
func (e *Effects) unlock(mu *sync.Mutex) {
	if !e.waiting() {
		mu.Unlock()
		return
	}
	e.calling = true
	defer func() {
		e.calling = false
		mu.Unlock()
	}()
	for len(e.calls) > 0 {
		calls := e.calls
		e.calls = nil
		mu.Unlock()
		func() {
			defer mu.Lock() // also when a callback panics
			for _, call := range calls {
				call()
			}
		}()
	}
}
