package guard_test

import (
	"slices"
	"sync"
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

func TestAwait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard()
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() { g.Await(func(v *value) bool { v.n--; return v.n >= 0 }) })
		}
		synctest.Wait()
		g.Do(func(v *value) { v.n = 1; v.WakeOne() })
		synctest.Wait()
		if n := guard.Ask(g, func(v *value) int { return v.n }); n != 0 {
			t.Errorf("%d is left after one was woken", n)
		}
		var timer *time.Timer
		g.Do(func(v *value) {
			v.n = 1
			timer = v.WakeOneAfter(nil, time.Hour)
			v.WakeOneAfter(timer, time.Second)
		})
		time.Sleep(2 * time.Second)
		if n := guard.Ask(g, func(v *value) int { return v.n }); n != 0 {
			t.Errorf("%d is left after the second", n)
		}
		g.Do(func(v *value) { v.n = 9; v.WakeAll() })
		wg.Wait()
	})
}

// A goroutine that begins to wait makes the calls that it has noted itself.
func TestAwaitMakesCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard()
		noted, told := false, false
		go g.Await(func(v *value) bool {
			if !noted {
				noted = true
				v.Call(func() { told = true })
			}
			return v.n > 0
		})
		synctest.Wait()
		if !told {
			t.Error("a call waits for another goroutine")
		}
		g.Do(func(v *value) { v.n = 1; v.WakeAll() })
		synctest.Wait()
	})
}
