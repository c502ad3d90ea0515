package core

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout = 64 * time.Second // so that a context is shared for a second
		var d deadlines
		parent, cancel := context.WithCancel(t.Context())
		get := func() context.Context {
			t.Helper()
			now := time.Now()
			ctx := d.context(parent, now, timeout)
			end, ok := ctx.Deadline()
			if left := end.Sub(now); !ok || left > timeout || left < timeout-timeout/sharedPart {
				t.Errorf("a publish has %s of %s", left, timeout)
			}
			return ctx
		}
		first := get()
		time.Sleep(time.Second - 1)
		equal(t, get(), first, "two publishes that begin together have a timer each")
		time.Sleep(time.Nanosecond)
		second := get()
		if second == first {
			t.Fatal("a context is shared for too long")
		}
		if first.Err() != nil {
			t.Error("the publishes before end with the next context")
		}
		time.Sleep(timeout - time.Second)
		synctest.Wait()
		if !errors.Is(first.Err(), context.DeadlineExceeded) || second.Err() != nil {
			t.Errorf("at the end of the first: %v, %v", first.Err(), second.Err())
		}
		third := get()
		cancel()
		if !errors.Is(second.Err(), context.Canceled) || !errors.Is(third.Err(), context.Canceled) {
			t.Errorf("at the end of the relay: %v, %v", second.Err(), third.Err())
		}
	})
}
