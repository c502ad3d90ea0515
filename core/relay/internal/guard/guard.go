// Package guard gives goroutines one way to a value that they share.
package guard

import (
	"sync"
	"time"
)

// Guard owns a value. Do and Ask are the only ways to it, and one goroutine at a time has
// it. The functions that they run change the value and note effects to run outside: see Effects.
type Guard[S any] struct {
	mu      sync.Mutex
	value   *S
	effects Effects
}

// New returns the guard of of's result. Nothing else may keep the value.
func New[S any](of func(*Effects) *S) *Guard[S] {
	g := &Guard[S]{}
	g.effects.mu = &g.mu
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

func (g *Guard[S]) unlock() { g.effects.unlock() }

// Effects are actions that a function requests while it changes the value, and that run outside the
// lock. They are used with the value alone.
//
// The calls are made without the lock, in the order in which they were noted. One goroutine at a
// time makes them for all, so that an observer gets states in their order.
type Effects struct {
	mu      *sync.Mutex // of the guard
	calls   []func()
	calling bool // a goroutine makes the calls
}

// Call notes a call.
func (e *Effects) Call(fn func()) { e.calls = append(e.calls, fn) }

// After calls fn, which has the value too, when d is over. t is the result of the last call for the
// same purpose, or nil: its call is put off.
func (e *Effects) After(t *time.Timer, d time.Duration, fn func()) *time.Timer {
	if t != nil {
		t.Reset(d)
		return t
	}
	return time.AfterFunc(d, func() {
		e.mu.Lock()
		defer e.unlock()
		fn()
	})
}

// unlock unlocks the guard and makes the calls.
func (e *Effects) unlock() {
	if len(e.calls) == 0 || e.calling {
		e.mu.Unlock()
		return
	}
	e.calling = true
	defer func() {
		e.calling = false
		e.mu.Unlock()
	}()
	for len(e.calls) > 0 {
		calls := e.calls
		e.calls = nil
		e.mu.Unlock()
		func() {
			defer e.mu.Lock() // also when a callback panics
			for _, call := range calls {
				call()
			}
		}()
	}
}
