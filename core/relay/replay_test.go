package relay_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/relay"
)

// replayOrders returns a table in which n events of the topic orders were published and are due
// again as a replay, half of them with keys.
func replayOrders(t *testing.T, n int) *outboxtest.Repository {
	t.Helper()
	w := newWorld(t, core.Config{})
	repo := w.repo
	events := make([]core.Event, n)
	for i := range events {
		events[i] = core.Event{Type: "placed", Topic: "orders"}
		if i%2 == 0 {
			events[i].Key = string(rune('a' + i/2%10))
		}
	}
	w.publish(events...)
	must(t, w.ob.Drain(t.Context()))
	w.atRest(n)
	p := ops.StoredPlan{ID: "p", Plan: ops.Plan{Action: ops.ActionReplay}}
	for _, row := range repo.Rows() {
		p.IDs = append(p.IDs, row.ID)
	}
	must(t, repo.InsertPlan(t.Context(), p, "plan", time.Hour))
	p.Version = 1
	if p, _, err := repo.ChangePlan(t.Context(), ops.PlanChange{
		Plan: p, IDs: p.IDs, Request: core.AdminRequest{Actor: "ada", Reason: "lost"},
	}); err != nil || p.Changed != n {
		t.Fatalf("replayed %d of %d events: %v", p.Changed, n, err)
	}
	return repo
}

// allReplayed fails the test unless n replays arrived once each, in the order of their keys.
func allReplayed(t *testing.T, pub *slowly, n int) {
	t.Helper()
	pub.mu.Lock()
	defer pub.mu.Unlock()
	got := slices.DeleteFunc(slices.Clone(pub.got), func(d core.Delivery) bool { return d.ReplayOf.IsZero() })
	once := map[core.RowID]bool{}
	for _, d := range got {
		once[d.ReplayOf] = true
	}
	if len(got) != n || len(once) != n {
		t.Errorf("%d copies of %d replayed events arrived, want %d", len(got), len(once), n)
	}
	inOrder(t, got)
}

// Many replayed events are due at a slow destination. Events that come later find a worker and room
// at once: those of the fast path, those that another process has written, and retries. The replay
// goes on beside them.
func TestReplaysHoldUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repo, pub := replayOrders(t, 300), &slowly{takes: time.Second}
		cfg := core.Config{Publisher: pub, Relay: relay.Config{Workers: 4, ColdEvents: 60, ClaimBatch: 30}}
		w := join(t, repo, nil, cfg).run()
		time.Sleep(5500 * time.Millisecond)
		if n := len(pub.times("orders")); n != 12 || pub.most["orders"] != 2 {
			t.Errorf("%d replays in 5.5 s, %d at most at once; want 12 and half of the workers", n, pub.most["orders"])
		}
		other := join(t, repo, nil, core.Config{}) // it does not relay
		other.publish(core.Event{Type: "cold"}, core.Event{Type: "later", Delay: 10 * time.Second})
		w.publish(core.Event{Type: "hot"})
		time.Sleep(time.Millisecond)
		equal(t, len(pub.times("hot")), 1, "an event of the fast path was published so often at once")
		time.Sleep(2 * time.Second)
		if n := len(pub.times("cold")); n != 1 || w.hot.Load() != 1 {
			t.Errorf("an event of another process was published %d times in 2 s, and %d took the fast path", n,
				w.hot.Load())
		}
		time.Sleep(11 * time.Second)
		equal(t, len(pub.times("later")), 1, "an event that became due after 10 s was published so often after 13 s")
		time.Sleep(6 * time.Minute)
		allReplayed(t, pub, 300)
	})
}

// A replay to a destination with a rate leaves room for its other events, and goes on.
func TestReplaysAtALimitedDestination(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repo, pub := replayOrders(t, 200), &slowly{}
		other := join(t, repo, nil, core.Config{})
		operator := newOutbox(t, core.Config{Repository: repo})
		setRate(t, operator, "orders", 10, 0)
		ob, _ := runOutbox(t, core.Config{Repository: repo, Publisher: pub})
		for range 5 {
			time.Sleep(1500 * time.Millisecond)
			other.publish(core.Event{Type: "live", Topic: "orders"})
			(&pausing{Repository: repo}).publish(t, ob, core.Event{Type: "live", Topic: "orders", Key: "k"})
		}
		time.Sleep(2500 * time.Millisecond) // 10 s in all
		live := 0
		pub.mu.Lock()
		for _, d := range pub.got {
			if d.Type == "live" {
				live++
			}
		}
		pub.mu.Unlock()
		if n := len(pub.times("orders")); live != 10 || n < 40 || n > 105 {
			t.Errorf("%d of 10 live events, and %d events in 10 s; want 40 to 100", live, n)
		}
		time.Sleep(5 * time.Minute)
		allReplayed(t, pub, 200)
	})
}

// Drain publishes replayed events too, whatever number is due.
func TestDrainPublishesReplays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repo, pub := replayOrders(t, 100), &slowly{}
		w := join(t, repo, nil, core.Config{Publisher: pub, Relay: relay.Config{ColdEvents: 10, ClaimBatch: 5}})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		must(t, w.ob.Drain(ctx))
		allReplayed(t, pub, 100)
	})
}

// A destination that was stopped is probed with replayed events if it has no others, and then gets
// all of them.
func TestReplaysAfterAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repo, pub := replayOrders(t, 100), &outboxtest.Publisher{}
		pub.Outage("orders", nil)
		w := join(t, repo, pub, core.Config{Relay: relay.Config{ColdEvents: 10, ClaimBatch: 5}}).run()
		time.Sleep(5 * time.Minute)
		pub.Restore("orders")
		time.Sleep(2 * time.Minute)
		w.atRest(200)
		if got := pub.Accepted(); len(got) != 100 {
			t.Errorf("%d of 100 replays were published", len(got))
		} else {
			inOrder(t, got)
		}
	})
}

// The log says that an event that became dead is a replay, and of which row.
func TestDeadReplayIsLoggedAsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		repo := replayOrders(t, 1)
		replayed := repo.Rows()[0].ID
		for _, row := range repo.Rows() {
			if !row.ReplayOf.IsZero() {
				replayed = row.ReplayOf
			}
		}
		w := join(t, repo, nil, core.Config{
			Logger: slog.New(slog.NewTextHandler(&log, nil)),
			Publisher: core.PublisherFunc(func(_ context.Context, d core.Delivery) error {
				return core.Permanent(errors.New("refused " + d.Topic))
			}),
		}).run()
		time.Sleep(time.Minute)
		w.publish(core.Event{Type: "placed", Topic: "fresh"})
		time.Sleep(time.Minute)
		must(t, w.stop())
		for line := range strings.Lines(log.String()) {
			if want := strings.Contains(line, "refused orders"); strings.Contains(line, "event is dead") &&
				strings.Contains(line, "replay_of="+replayed.String()) != want {
				t.Errorf("replay: %t: %s", want, line)
			}
		}
		if n := strings.Count(log.String(), "event is dead"); n != 2 {
			t.Errorf("%d dead events in the log, want 2:\n%s", n, log.String())
		}
	})
}
