package guard_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ormoutbox/ormoutbox/core/relay/internal/guard"
)

type value struct {
	*guard.Effects
	n int
}

func newGuard() *guard.Guard[value] {
	return guard.New(func(e *guard.Effects) *value { return &value{Effects: e} })
}

func TestCallsAreMadeInOrder(t *testing.T) {
	g := newGuard()
	var told []int
	g.Do(func(v *value) {
		v.Call(func() {
			told = append(told, 1)
			g.Do(func(v *value) { v.Call(func() { told = append(told, 3) }) }) // it comes back
		})
		v.Call(func() { told = append(told, 2) })
	})
	if !slices.Equal(told, []int{1, 2, 3}) {
		t.Errorf("told %v", told)
	}
}

// If a call panics, the value is free and other calls are still made.
func TestCallThatPanics(t *testing.T) {
	g := newGuard()
	func() {
		defer func() { _ = recover() }()
		g.Do(func(v *value) { v.Call(func() { panic("observer") }) })
	}()
	told := false
	g.Do(func(v *value) { v.Call(func() { told = true }) })
	if !told {
		t.Error("nobody is told any more")
	}
}

// After calls once, after the last duration, and calls that it notes are made.
func TestAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard()
		start, told := time.Now(), time.Duration(0)
		count := func(v *value) func() {
			return func() {
				v.n++
				v.Call(func() { told = time.Since(start) })
			}
		}
		g.Do(func(v *value) {
			timer := v.After(nil, time.Hour, count(v))
			v.After(timer, time.Second, count(v))
		})
		time.Sleep(2 * time.Hour)
		if n := guard.Ask(g, func(v *value) int { return v.n }); n != 1 || told != time.Second {
			t.Errorf("called %d times, told after %s", n, told)
		}
	})
}
