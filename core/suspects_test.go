package core_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

// A process that was killed three times makes suspects of all it held. They go one at a time, and must not wait for seconds each.
func TestInnocentSuspectsAreSoonThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, core.Config{})
		for i := range 50 {
			w.publish(core.Event{Type: "a", AggregateID: fmt.Sprint(i % 10)}, core.Event{Type: "b"})
		}
		for range 4 { // the first claim finds no lost lease
			req := core.ClaimRequest{Node: "gone", Lease: 30 * time.Second, MaxLease: time.Hour, Limit: 500, MaxBytes: 1 << 20, Run: 50, Lanes: 1000}
			if rows, err := w.repo.ClaimUnordered(t.Context(), req); err != nil || len(rows) != 50 {
				t.Fatalf("claimed %d unordered rows, err %v; want 50", len(rows), err)
			}
			if rows, _, err := w.repo.ClaimHeads(t.Context(), req, core.Lane{}); err != nil || len(rows) != 50 {
				t.Fatalf("claimed %d ordered rows, err %v; want 50", len(rows), err)
			}
			time.Sleep(time.Minute)
		}

		w.run()
		time.Sleep(15 * time.Second)
		w.atRest(100)
		inOrder(t, w.pub.Accepted())
		if n := len(w.pub.Accepted()); n != 100 {
			t.Errorf("%d copies of 100 events", n)
		}
		if err := w.stop(); err != nil {
			t.Error(err)
		}
	})
}
