package core

import (
	"slices"
	"sync"
	"testing"
)

func TestNoticesAreToldInOrder(t *testing.T) {
	var mu sync.Mutex
	var n notices
	var told []int
	mu.Lock()
	n.unlock(&mu) // no notice was added
	mu.Lock()
	n.add(func() {
		told = append(told, 1)
		mu.Lock() // the callback calls the relay, which adds notices
		n.add(func() { told = append(told, 3) })
		n.unlock(&mu)
	})
	n.add(func() { told = append(told, 2) })
	if !n.wait() {
		t.Error("nothing waits to be told")
	}
	n.unlock(&mu)
	if !slices.Equal(told, []int{1, 2, 3}) || n.wait() {
		t.Errorf("told %v", told)
	}
}

// If a callback panics, the lock is free and the other callbacks are still called.
func TestNoticeThatPanics(t *testing.T) {
	var mu sync.Mutex
	var n notices
	told := false
	func() {
		defer func() { recover() }()
		mu.Lock()
		n.add(func() { panic("observer") })
		n.unlock(&mu)
	}()
	mu.Lock()
	n.add(func() { told = true })
	n.unlock(&mu)
	if !told {
		t.Error("nobody is told any more")
	}
}
