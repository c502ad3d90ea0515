package ops_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// poisoned is a world in which n events are dead. Some of them are the first of a key, with more
// events behind them. fails counts the publishes that were refused since then.
type poisoned struct {
	*world
	plan  ops.StoredPlan
	fails atomic.Int64
}

func newPoisoned(t *testing.T, db testdb.DB, n int, policy core.DeadPolicy) *poisoned {
	t.Helper()
	w := &poisoned{world: newWorld(t, db, core.Config{
		DeadPolicy: policy,
		Relay:      relay.Config{PollInterval: 20 * time.Millisecond, MaxPollInterval: 100 * time.Millisecond},
	})}
	events := make([]core.Event, 0, n)
	for i := range n {
		e := core.Event{Type: "dead.paid", Topic: "orders"}
		if i%2 == 0 {
			e.Key = fmt.Sprint("k", i/4) // the second event of a key waits behind the first one, or dies too
		}
		events = append(events, e)
	}
	w.Publish(events...)
	w.Publish(core.Event{Type: "dead.sent", Topic: "other"})
	w.drain()
	w.breaks("dead", 0)
	p, err := w.api.PlanRedrive(t.Context(), ops.Filter{Topic: "orders"}, 0)
	fixture.NoError(t, err)
	if w.plan, err = w.api.StorePlan(t.Context(), p, "ada", "schema registered"); err != nil {
		t.Fatal(err)
	}
	return w
}

// breaks makes the destination refuse events whose type begins with prefix, from now on. It still
// accepts the first ones, as many as first says.
func (w *poisoned) breaks(prefix string, first int64) {
	w.fails.Store(0)
	var seen atomic.Int64
	w.Publisher.FailFor(func(d core.Delivery) error {
		if !strings.HasPrefix(d.Type, prefix) || seen.Add(1) <= first {
			return nil
		}
		w.fails.Add(1)
		return core.Permanent(errors.New("still broken"))
	})
}

func (w *poisoned) stored() ops.StoredPlan {
	w.T.Helper()
	p, err := w.api.StoredPlan(w.T.Context(), w.plan.ID)
	fixture.NoError(w.T, err)
	return p
}

// A dry run is refused as the run would be, and changes nothing.
func TestRunPlanDry(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		w := newPoisoned(t, db, 4, core.BlockKey)
		before := w.stored()
		p, err := w.run(ops.RunOptions{DryRun: true})
		fixture.NoError(t, err)
		fixture.Check(t, p.State == ops.PlanPlanned && p.Events == len(p.IDs) && p.Version == before.Version,
			"a dry run returns %+v", p)
		if got := w.stored(); got.Version != before.Version || w.dead("orders") != len(p.IDs) {
			t.Errorf("a dry run has changed the plan or its events: %+v, %v", got, w.Statuses())
		}
		_, err = w.run(ops.RunOptions{DryRun: true, Rate: -1})
		fixture.Check(t, errors.Is(err, core.ErrInvalidRequest), "rate -1: %v", err)
		_, err = w.api.CancelPlan(t.Context(), w.plan.ID, "eve", "not these")
		fixture.NoError(t, err)
		if _, err := w.run(ops.RunOptions{DryRun: true}); !errors.Is(err, ops.ErrPlanEnded) {
			t.Errorf("a plan that is cancelled: %v", err)
		}
	})
}

func (w *poisoned) run(o ops.RunOptions) (ops.StoredPlan, error) {
	o.Actor = "bob"
	return w.api.RunPlan(w.T.Context(), w.plan.ID, o)
}

// dead returns how many events of the topic are dead.
func (w *poisoned) dead(topic string) int {
	w.T.Helper()
	n, err := w.api.Count(w.T.Context(), ops.Filter{Statuses: []ops.Status{ops.StatusDead}, Topic: topic})
	fixture.NoError(w.T, err)
	return n.N
}

// Before the repair, the plan publishes a single event, which is refused, and stops. If one event
// is accepted, the plan stops after at most ten more that are refused. After the repair all events
// leave in the order of their keys.
func TestRunPlanStopsAndGoesOn(t *testing.T) {
	t.Parallel()
	testdb.Every(t, func(t *testing.T, db testdb.DB) {
		for _, policy := range []core.DeadPolicy{core.BlockKey, core.SkipDead} {
			w := newPoisoned(t, db.Another(t), 120, policy)
			dead := w.dead("orders")
			stop := w.Run()
			p, err := w.run(ops.RunOptions{})
			if !errors.Is(err, ops.ErrPlanStopped) || p.State != ops.PlanStopped || p.Position != 1 || p.Failed != 1 ||
				w.fails.Load() != 1 || !strings.Contains(p.Note, "1 of 1 events failed again") {
				t.Fatalf("%d publishes were refused, %+v %v", w.fails.Load(), p, err)
			}
			if stored := w.stored(); stored.State != ops.PlanStopped || stored.Note != p.Note || stored.Failed != 1 {
				t.Errorf("stored %+v", stored)
			}
			w.breaks("dead", 1)
			if p, err = w.run(ops.RunOptions{}); !errors.Is(err, ops.ErrPlanStopped) || p.Position != 12 ||
				p.Succeeded != 1 || w.fails.Load() > 10 {
				t.Fatalf("%d publishes were refused, %+v %v", w.fails.Load(), p, err)
			}
			w.Publisher.FailFor(nil)
			if p, err = w.run(ops.RunOptions{}); err != nil || p.State != ops.PlanDone || p.Position != dead ||
				p.Changed != dead {
				t.Fatalf("%+v %v", p, err)
			}
			if _, err = w.run(ops.RunOptions{}); !errors.Is(err, ops.ErrPlanEnded) {
				t.Errorf("a plan that is done: %v", err)
			}
			stop()
			// The events that failed again are still dead, because a plan redrives no event twice.
			again, err := w.api.PlanRedrive(t.Context(), ops.Filter{Topic: "orders"}, 0)
			fixture.NoError(t, err)
			fixture.Check(t, len(again.IDs) == p.Failed && p.Succeeded == dead-p.Failed,
				"%d events are dead, %+v", len(again.IDs), p)
			_, err = w.api.Apply(t.Context(), again, "bob", "the rest")
			fixture.NoError(t, err)
			w.drain()
			arrivedInOrder(t, w.world, 60, 30)
			fixture.Check(t, w.dead("other") == 1, "an event outside of the plan was redriven")
		}
	})
}

// A process that dies leaves a plan that another one goes on with. No event is redriven twice.
func TestRunPlanAfterACrash(t *testing.T) {
	t.Parallel()
	testdb.Every(t, func(t *testing.T, db testdb.DB) {
		w := newPoisoned(t, db, 100, core.BlockKey)
		store := fixture.NewOpsStore(t, w.Outbox.Repository())
		p := w.stored()
		p.State, p.Worker, p.Position, p.Stage = ops.PlanRunning, "gone", 1, 1
		change := ops.PlanChange{
			Plan: p, Lease: time.Hour, IDs: p.IDs[:1],
			Request: core.AdminRequest{Actor: "ada", Reason: p.Reason + " (plan " + p.ID + ")"},
		}
		p, ok, err := store.ChangePlan(t.Context(), change)
		if !ok || err != nil {
			t.Fatal(ok, err)
		}
		if _, err = w.run(ops.RunOptions{}); !errors.Is(err, ops.ErrPlanRunning) {
			t.Fatalf("a plan that another process runs: %v", err)
		}
		_, ok, err = store.ChangePlan(t.Context(), ops.PlanChange{Plan: p, Lease: time.Millisecond})
		if !ok || err != nil {
			t.Fatal(ok, err)
		}
		fixture.Await(t, "the lease ends", func() bool { p := w.stored(); return !p.Running() })
		w.drain() // the event dies again
		stop := w.Run()
		defer stop()
		p, err = w.run(ops.RunOptions{})
		if !errors.Is(err, ops.ErrPlanStopped) || p.Position != 1 || p.Failed != 1 || w.fails.Load() != 1 {
			t.Fatalf("%d publishes were refused, %+v %v", w.fails.Load(), p, err)
		}
		w.Publisher.FailFor(nil)
		if p, err = w.run(ops.RunOptions{}); err != nil || p.State != ops.PlanDone || p.Succeeded != p.Events-1 {
			t.Fatalf("%+v %v", p, err)
		}
		fixture.Check(t, w.one(w.eventID(p.IDs[0])).Status == ops.StatusDead, "an event was redriven twice by one plan")
	})
}

// eventID returns the id of the event of a row.
func (w *poisoned) eventID(id core.RowID) string {
	w.T.Helper()
	d, err := w.api.Show(w.T.Context(), id.String())
	fixture.Must(w.T, err == nil && len(d) == 1, "%+v %v", d, err)
	return d[0].EventID
}

// A plan changes no more events after it was paused or cancelled, or when its context ends. It also
// stops if no relay runs.
func TestRunPlanEnds(t *testing.T) {
	t.Parallel()
	testdb.Every(t, func(t *testing.T, db testdb.DB) {
		w := newPoisoned(t, db, 60, core.BlockKey) // no relay runs, so the first event has no result
		p, err := w.run(ops.RunOptions{Wait: 50 * time.Millisecond})
		if !errors.Is(err, ops.ErrPlanStopped) || p.State != ops.PlanStopped ||
			!strings.Contains(p.Note, "is a relay running") {
			t.Fatalf("%+v %v", p, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		run := func(ctx context.Context) {
			go func() {
				_, err := w.api.RunPlan(ctx, w.plan.ID, ops.RunOptions{Actor: "bob"})
				ended <- err
			}()
		}
		run(ctx)
		fixture.Await(t, "it runs", func() bool { p := w.stored(); return p.Running() && p.Position == 1 })
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if p := w.stored(); p.State != ops.PlanPaused || p.Position != 1 {
			t.Fatalf("%+v", p)
		}
		run(t.Context())
		fixture.Await(t, "it runs", func() bool { p := w.stored(); return p.Running() })
		if _, err := w.run(ops.RunOptions{}); !errors.Is(err, ops.ErrPlanRunning) {
			t.Errorf("two processes: %v", err)
		}
		p, err = w.api.CancelPlan(t.Context(), w.plan.ID, "eve", "wrong topic")
		fixture.Must(t, err == nil && p.State == ops.PlanCancelled && strings.Contains(p.Note, "eve: wrong topic"),
			"%+v %v", p, err)
		if err := <-ended; !errors.Is(err, ops.ErrPlanStopped) || !strings.Contains(err.Error(), "eve: wrong topic") {
			t.Error(err)
		}
		if p := w.stored(); p.State != ops.PlanCancelled || p.Position != 1 || w.dead("orders") != p.Events-1 {
			t.Errorf("%d dead, %+v", w.dead("orders"), p)
		}
		_, err = w.api.PausePlan(t.Context(), w.plan.ID, "eve", "again")
		fixture.Check(t, errors.Is(err, ops.ErrPlanEnded), "a cancelled plan was paused: %v", err)
		records, err := w.Outbox.ListAudit(t.Context(), core.AuditQuery{})
		fixture.NoError(t, err)
		var whole []string
		for _, a := range records {
			if a.RowID.IsZero() {
				whole = append(whole, a.Action+" by "+a.Actor)
			}
		}
		want := "cancel-plan by eve, run-plan by bob, run-plan by bob, run-plan by bob, plan by ada"
		if got := strings.Join(whole, ", "); got != want {
			t.Errorf("audit %s, want %s", got, want)
		}
		if text := records[len(records)-1].Reason; !strings.Contains(text, "schema registered") ||
			!strings.Contains(text, fmt.Sprintf("redrive of %d events", p.Events)) ||
			!strings.Contains(text, `"orders"`) {
			t.Errorf("audit %q", text)
		}
	})
}

func TestRunPlanRefused(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		w := newPoisoned(t, db, 4, core.BlockKey)
		ctx, changed := t.Context(), w.plan.Plan
		store := func(p ops.Plan, reason string) error { _, err := w.api.StorePlan(ctx, p, "ada", reason); return err }
		changed.IDs = changed.IDs[1:]
		for what, call := range map[string]func() error{
			"no actor":    func() error { _, err := w.api.RunPlan(ctx, w.plan.ID, ops.RunOptions{}); return err },
			"a rate":      func() error { _, err := w.run(ops.RunOptions{Rate: -1}); return err },
			"a share":     func() error { _, err := w.run(ops.RunOptions{StopShare: 2}); return err },
			"no reason":   func() error { return store(w.plan.Plan, "") },
			"no events":   func() error { return store(ops.Plan{Action: ops.ActionRedrive}, "r") },
			"no action":   func() error { return store(ops.Plan{IDs: changed.IDs}, "r") },
			"no canceler": func() error { _, err := w.api.CancelPlan(ctx, w.plan.ID, "", "r"); return err },
		} {
			if err := call(); !errors.Is(err, core.ErrInvalidRequest) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if err := store(changed, "r"); !errors.Is(err, ops.ErrPlanChanged) {
			t.Errorf("a changed plan: %v", err)
		}
		if _, err := w.api.RunPlan(ctx, "none", ops.RunOptions{Actor: "a"}); !errors.Is(err, ops.ErrNoPlan) {
			t.Errorf("no plan: %v", err)
		}
		if all, err := w.api.StoredPlans(ctx, 0); err != nil || len(all) != 1 || all[0].State != ops.PlanPlanned {
			t.Errorf("%+v %v", all, err)
		}
	})
}
