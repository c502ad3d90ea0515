package core_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
)

// Marks of claimed events are written in batches as large as a claim. Those of the fast path are
// written in batches of MarkBatch.
func TestBatchesOfMarks(t *testing.T) {
	const events, publish, delay = 1000, time.Millisecond, time.Minute
	for _, path := range []core.Path{core.PathHot, core.PathCold} {
		t.Run(string(path), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var batches []int
				w := newWorld(t, core.Config{
					MarkDelay: delay,
					Publisher: core.PublisherFunc(func(context.Context, core.Delivery) error {
						time.Sleep(publish)
						return nil
					}),
					Observer: &core.Observer{Marked: func(rows int, _ time.Duration, _ error) {
						mu.Lock()
						defer mu.Unlock()
						batches = append(batches, rows)
					}},
				})
				from := w
				if path == core.PathCold {
					from = join(t, w.repo, w.pub, core.Config{}) // a process without a relay
				} else {
					w.run()
				}
				all := make([]core.Event, events)
				for i := range all {
					all[i] = core.Event{Type: "a"}
				}
				from.publish(all...)
				if path == core.PathCold {
					w.run()
				}
				time.Sleep(2 * delay)
				w.atRest(events)
				const workers, markBatch = 32, 100
				for i, n := range batches {
					if path == core.PathHot && (n > markBatch+workers || n < markBatch && i < len(batches)-1) {
						t.Errorf("batches of %v marks, want %d or a little more", batches, markBatch)
						break
					}
				}
				if path == core.PathCold && len(batches) != 2 {
					t.Errorf("batches of %v marks, want 2: one for each claim", batches)
				}
			})
		})
	}
}

// While no mark can be written, each path publishes only as many events as a crash may repeat. The
// fast path publishes MaxUnmarked events and one for each worker, and the poller publishes
// ColdEvents. The fast path does not hold the poller back.
func TestUnmarkedEventsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const workers, maxUnmarked, coldEvents = 4, 10, 30
		w := newWorld(t, core.Config{
			Workers: workers, MarkBatch: 5, MaxUnmarked: maxUnmarked, ColdEvents: coldEvents, ClaimBatch: 20,
		})
		other := join(t, w.repo, w.pub, core.Config{}) // a process without a relay
		w.faulty.Fail(outboxtest.Fault{Method: outboxtest.MethodMarkDone, Times: -1})
		w.run()
		for range 100 {
			w.publish(core.Event{Type: "a"})
		}
		for range 100 {
			other.publish(core.Event{Type: "a"})
		}
		time.Sleep(20 * time.Second) // less than a lease of the poller
		if n := w.hot.Load(); n < maxUnmarked || n > maxUnmarked+workers {
			t.Errorf("%d events of the fast path were published without a mark, want %d to %d", n, maxUnmarked,
				maxUnmarked+workers)
		}
		equal(t, w.cold.Load(), coldEvents, "claimed events were published without a mark")
		w.faulty.Heal()
		time.Sleep(time.Minute)
		w.atRest(200)
		equal(t, len(w.pub.Accepted()), 200, "copies of 200 events")
	})
}
