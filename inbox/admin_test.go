package inbox_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coreinbox "github.com/ormoutbox/ormoutbox/core/inbox"
)

func TestCleanup(t *testing.T) {
	w := newWorld(t, func(c *coreinbox.Config) { c.Retention, c.BrokerRetention = 48*time.Hour, 24*time.Hour })
	h, _ := w.times(1, errHandler)
	_ = w.deliver(h, event(t.Context(), "failed"))
	for _, id := range []string{"a", "b"} {
		must(t, w.deliver(w.handler, event(t.Context(), id)))
	}
	for _, step := range []struct {
		shift time.Duration
		want  int
	}{{0, 0}, {47 * time.Hour, 0}, {2 * time.Hour, 2}, {time.Hour, 0}} {
		w.store.ShiftClock(step.shift)
		if n, err := w.in.Cleanup(t.Context()); n != step.want || err != nil {
			t.Errorf("deleted %d, %v; want %d", n, err, step.want)
		}
	}
}

func TestRunCleansUpUntilItsContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var cleaned atomic.Int64
		w := newWorld(t, func(c *coreinbox.Config) {
			c.Retention, c.BrokerRetention = 2*time.Hour, time.Hour
			c.Observer.Cleaned = func(deleted int, err error) {
				cleaned.Add(int64(deleted))
				noError(t, err)
			}
		})
		must(t, w.deliver(w.handler, event(t.Context(), "a")))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- w.in.Run(ctx) }()
		time.Sleep(time.Hour)
		equal(t, w.store.Processed(), 1, "left after an hour")
		time.Sleep(time.Hour + 10*time.Minute)
		synctest.Wait()
		equal(t, w.store.Processed(), 0, "left after the retention")
		if n := cleaned.Load(); n != 1 {
			t.Errorf("the observer heard of %d, want 1", n)
		}
		cancel()
		noError(t, <-ended)
	})
}

// Without a setting and without Run, ids are forgotten after a month, beside the messages that come.
func TestIDsAreNotKeptForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		day := func(id string) {
			must(t, w.deliver(w.handler, event(t.Context(), id)))
			synctest.Wait()
			time.Sleep(24 * time.Hour)
		}
		day("first")
		for n := range 29 {
			day(fmt.Sprint(n))
		}
		equal(t, w.store.Processed(), 30, "remembered after 30 days")
		day("30")
		day("31")
		equal(t, w.store.Processed(), 31, "remembered after 32 days")
	})
}

func TestCleanupNeedsARetention(t *testing.T) {
	w := newWorld(t, func(c *coreinbox.Config) { c.Retention = -1 })
	if _, err := w.in.Cleanup(t.Context()); err == nil {
		t.Error("Cleanup")
	}
	if err := w.in.Run(t.Context()); err == nil {
		t.Error("Run")
	}
}
