package inbox_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
)

// Eight copies come at once: the event has one effect, and no copy ends with an error.
func TestConcurrentCopies(t *testing.T) {
	w := newWorld(t)
	h, calls := w.times(1, errHandler) // the first copy rolls back, and another one goes on
	var wg sync.WaitGroup
	var failures atomic.Int64
	for range 8 {
		wg.Go(func() {
			if _, err := w.in.Middleware(h)(event(context.Background(), "e")); err != nil {
				failures.Add(1)
			}
		})
	}
	wg.Wait()
	w.effect("e", 1)
	// If another copy has succeeded before the failure was recorded, the copy that failed is a
	// duplicate.
	if calls.Load() != 2 || failures.Load() > 1 {
		t.Errorf("%d calls and %d failures, want 2 and at most 1", calls.Load(), failures.Load())
	}
}
