package core_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
)

// A relay may start before the first consumer of a topic exists. It makes no event dead, and the
// age of the waiting events is reported.
func TestUnroutableUntilARouteWasSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, core.Config{})
		w.pub.Outage("a", core.Unroutable(errors.New("312 NO_ROUTE")))
		w.run()
		for range 20 {
			w.publish(core.Event{Type: "a", Key: "k"}, core.Event{Type: "a"}, core.Event{Type: "other"})
		}
		time.Sleep(10 * time.Minute)
		backlog, err := w.ob.Backlog(t.Context())
		if err != nil || backlog.Dead != 0 || backlog.Pending != 40 || backlog.OldestAge < 10*time.Minute {
			t.Fatalf("Backlog: %+v, %v; want 40 pending for 10 min and none dead", backlog, err)
		}
		w.pub.Restore("a") // a person declares the queue
		time.Sleep(5 * time.Second)
		w.atRest(60)
		inOrder(t, w.pub.Accepted())

		// From here on the topic has a route, so an event without a route is at fault.
		w.pub.FailFor(func(d core.Delivery) error {
			if d.AggregateID == "lost" {
				return core.Unroutable(errors.New("312 NO_ROUTE"))
			}
			return nil
		})
		w.publish(core.Event{Type: "a", AggregateID: "lost"}, core.Event{Type: "a", AggregateID: "fine"})
		time.Sleep(5 * time.Second)
		dead, err := w.ob.ListDead(t.Context(), core.DeadQuery{})
		if err != nil || len(dead) != 1 || dead[0].ErrorCode != "unroutable" || dead[0].Event.AggregateID != "lost" {
			t.Errorf("ListDead: %+v, %v", dead, err)
		}
	})
}

// A queue that is deleted later does not turn the backlog into dead events.
func TestRouteThatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, core.Config{})
		w.run()
		w.publish(core.Event{Type: "a"})
		time.Sleep(time.Second)
		w.pub.Outage("a", core.Unroutable(errors.New("312 NO_ROUTE")))
		for range 100 {
			w.publish(core.Event{Type: "a"})
		}
		time.Sleep(10 * time.Minute)
		if n := w.statuses()[outboxtest.StatusDead]; n > 4 {
			t.Errorf("%d events are dead, want no more than it takes to see that it is not them", n)
		}
	})
}
