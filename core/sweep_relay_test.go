package core_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
)

// Thousands of blocked keys are not looked at again and again. This holds while no event is
// committed, and for each event of another key.
func TestBlockedKeysAreLeftAlone(t *testing.T) {
	const keys = 5500 // six pages
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, core.Config{ColdEvents: 20_000, ClaimBatch: 5000})
		producer := join(t, w.repo, w.pub, core.Config{})
		w.pub.FailFor(func(d core.Delivery) error {
			if d.Topic == "bad" {
				return core.Permanent(errors.New("no"))
			}
			return nil
		})
		for i := range keys {
			producer.publish(core.Event{Type: "bad", Key: fmt.Sprint(i)}, core.Event{Type: "bad", Key: fmt.Sprint(i)})
		}
		w.run()
		time.Sleep(2 * time.Minute)
		if got := w.statuses(); got[outboxtest.StatusDead] != keys || got[outboxtest.StatusNew] != keys {
			t.Fatalf("rows by status: %v", got)
		}

		before := w.faulty.Calls(outboxtest.MethodClaimHeads)
		time.Sleep(time.Minute)
		idle := w.faulty.Calls(outboxtest.MethodClaimHeads) - before
		if idle > 150 { // twelve polls of six pages, and some more
			t.Errorf("%d head scans in an idle minute", idle)
		}

		before = w.faulty.Calls(outboxtest.MethodClaimHeads)
		for i := range 600 { // only the poller finds these events; some have keys
			producer.publish(core.Event{Type: "good", Key: fmt.Sprint(i % 3)}, core.Event{Type: "good"})
			w.publish(core.Event{Type: "good", Key: fmt.Sprint("own", i%3)})
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(10 * time.Second)
		equal(t, w.statuses()[outboxtest.StatusDone], 1800, "events are done")
		if busy := w.faulty.Calls(outboxtest.MethodClaimHeads) - before; busy > 1200 {
			t.Errorf("%d head scans while 600 events came for other keys", busy)
		}
		inOrder(t, w.pub.Accepted())

		// No key is forgotten: redriven events are published.
		w.pub.FailFor(nil)
		dead, err := w.ob.ListDead(t.Context(), core.DeadQuery{Limit: 1000})
		must(t, err)
		ids := make([]core.RowID, len(dead))
		for i, d := range dead {
			ids[i] = d.ID
		}
		if n, err := w.ob.Redrive(t.Context(), core.AdminRequest{
			IDs: ids, Actor: "me",
			Reason: "mended",
		}); n != len(ids) || err != nil {
			t.Fatal(n, err)
		}
		time.Sleep(30 * time.Second)
		if got := w.statuses()[outboxtest.StatusDone]; got != 1800+2*len(ids) {
			t.Errorf("%d events are done after %d were redriven, want %d", got, len(ids), 1800+2*len(ids))
		}
		noError(t, w.ob.Drain(t.Context()))
	})
}
