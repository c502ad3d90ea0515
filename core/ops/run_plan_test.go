package ops_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/relay"
)

// planned returns an API on a table in memory with a stored plan that ends 100 open events.
func planned(t *testing.T) (*ops.API, *outboxtest.Repository, ops.StoredPlan) {
	t.Helper()
	table := outboxtest.NewRepository()
	api, stored := plannedIn(t, table, table.Transactor())
	return api, table, stored
}

// memory is a table in memory that package ops can change.
type memory interface {
	core.Repository
	ops.Store
}

func plannedIn(t *testing.T, table memory, txs core.Transactor) (*ops.API, ops.StoredPlan) {
	t.Helper()
	ob, err := core.New(core.Config{Repository: table})
	if err != nil {
		t.Fatal(err)
	}
	err = txs.RunInTx(t.Context(), func(ctx context.Context, tx core.Tx) (err error) {
		for i := range 100 {
			_, err = ob.Publish(ctx, tx, core.Event{
				Type: "order.placed", Topic: "orders", Key: fmt.Sprint(i),
				AggregateType: "order", AggregateID: fmt.Sprint(i),
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	api, err := ops.New(ob, table)
	if err != nil {
		t.Fatal(err)
	}
	p, err := api.PlanDiscard(t.Context(), ops.Filter{Statuses: []ops.Status{ops.StatusNew}}, 0)
	if err != nil {
		t.Fatal(err)
	}
	stored, err := api.StorePlan(t.Context(), p, "ada", "test orders")
	if err != nil {
		t.Fatal(err)
	}
	return api, stored
}

// A rate spreads the changes over time, and a plan that runs for long keeps its lease.
func TestRunPlanRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, _, stored := planned(t)
		since, last := time.Now(), 0
		stored, err := api.RunPlan(t.Context(), stored.ID, ops.RunOptions{
			Actor: "ada", Rate: 2, Progress: func(p ops.StoredPlan) {
				if p.Position-last > 2 || p.State == ops.PlanRunning && !p.Running() {
					t.Errorf("%d after %d, running %t", p.Position, last, p.Running())
				}
				last = p.Position
			},
		})
		if err != nil || stored.State != ops.PlanDone || stored.Changed != 100 {
			t.Fatalf("%+v %v", stored, err)
		}
		if took := time.Since(since); took < 48*time.Second || took > 51*time.Second {
			t.Errorf("100 events at 2 a second took %s", took)
		}
	})
}

// shortSighted is a table of which one call sees a few rows.
type shortSighted struct{ *outboxtest.Repository }

func (s shortSighted) ScanEvents(ctx context.Context, scan ops.Scan) (ops.Scanned, error) {
	scan.Look = min(scan.Look, 7)
	return s.Repository.ScanEvents(ctx, scan)
}

// A plan has the events that the filter selects although many others come before them.
func TestPlanBehindManyOthers(t *testing.T) {
	table := outboxtest.NewRepository()
	api, _ := plannedIn(t, shortSighted{table}, table.Transactor())
	for key, limit := range map[string]int{"93": 0, "0": 1} {
		f := ops.Filter{Statuses: []ops.Status{ops.StatusNew}, Topic: "orders", AggregateID: key}
		p, err := api.PlanDiscard(t.Context(), f, limit)
		if err != nil || len(p.IDs) != 1 || p.More && limit == 0 {
			t.Errorf("aggregate %s: %d events, more %t, %v", key, len(p.IDs), p.More, err)
		}
	}
	f := ops.Filter{Statuses: []ops.Status{ops.StatusNew}}
	p, err := api.PlanDiscard(t.Context(), f, 40)
	if err != nil || len(p.IDs) != 40 || !p.More {
		t.Errorf("%d events, more %t, %v", len(p.IDs), p.More, err)
	}
}

// A plan that was stopped begins with the first stage again, also if somebody pauses it meanwhile.
// Figures that are no rate and no share are refused.
func TestRunPlanStoppedAndPaused(t *testing.T) {
	table := outboxtest.NewRepository()
	api, stored := plannedIn(t, table, table.Transactor())
	stored.State, stored.Stage, stored.Note = ops.PlanStopped, 7, "60 of 500 events failed again"
	if _, ok, err := table.ChangePlan(t.Context(), ops.PlanChange{Plan: stored}); !ok || err != nil {
		t.Fatal(ok, err)
	}
	p, err := api.PausePlan(t.Context(), stored.ID, "eve", "not before noon")
	if err != nil || p.State != ops.PlanPaused || p.Stage != 0 ||
		p.Note != "by eve: not before noon (it was stopped: 60 of 500 events failed again)" {
		t.Fatalf("%s %d %q %v", p.State, p.Stage, p.Note, err)
	}
	for _, o := range []ops.RunOptions{
		{Rate: math.NaN()},
		{Rate: math.Inf(1)},
		{Rate: 1e-12},
		{Rate: -1},
		{StopShare: math.NaN()},
		{StopShare: 1.1},
		{StopShare: -0.1},
		{Wait: -1},
	} {
		o.Actor = "ada"
		if _, err := api.RunPlan(t.Context(), stored.ID, o); !errors.Is(err, core.ErrInvalidRequest) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// A process that was away for so long that another one took its plan changes nothing more.
func TestRunPlanThatAnotherProcessTook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, table, stored := planned(t)
		ended := make(chan error, 1)
		go func() {
			p, err := api.RunPlan(t.Context(), stored.ID, ops.RunOptions{Actor: "ada", Rate: 2})
			if p.Worker != "other" || p.State != ops.PlanRunning {
				t.Errorf("%+v", p)
			}
			ended <- err
		}()
		time.Sleep(10500 * time.Millisecond)
		p, err := api.StoredPlan(t.Context(), stored.ID)
		if err != nil || !p.Running() {
			t.Fatalf("%+v %v", p, err)
		}
		p.Worker = "other"
		taken, ok, err := table.ChangePlan(t.Context(), ops.PlanChange{Plan: p, Lease: time.Hour})
		if err != nil || !ok {
			t.Fatal(ok, err)
		}
		if err := <-ended; !errors.Is(err, ops.ErrPlanRunning) {
			t.Error(err)
		}
		now, err := api.StoredPlan(t.Context(), stored.ID)
		if err != nil || now.Version != taken.Version || now.Changed != p.Changed || !now.Running() {
			t.Errorf("%+v %v", now, err)
		}
	})
}

// lateTable is a table in which the last change of a run that is interrupted happens late: after
// the run has read the plan, and before it stores that the plan is paused.
type lateTable struct {
	*outboxtest.Repository
	late int // how many changes come late
}

func (r *lateTable) ChangePlan(ctx context.Context, c ops.PlanChange) (ops.StoredPlan, bool, error) {
	if c.Plan.State == ops.PlanPaused && r.late > 0 {
		r.late--
		last := c.Plan
		last.State = ops.PlanRunning
		_, ok, err := r.Repository.ChangePlan(ctx, ops.PlanChange{Plan: last, Lease: time.Minute})
		if !ok || err != nil {
			return c.Plan, false, errors.Join(errors.New("the plan was changed meanwhile"), err)
		}
	}
	return r.Repository.ChangePlan(ctx, c)
}

// A server may carry out a statement after its client has given up.
func TestRunPlanInterruptedInItsLastChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := &lateTable{Repository: outboxtest.NewRepository(), late: 2}
		api, stored := plannedIn(t, table, table.Transactor())
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if _, err := api.RunPlan(ctx, stored.ID, ops.RunOptions{Actor: "ada", Rate: 2}); err == nil {
			t.Error("a run whose context ended returned no error")
		}
		p, err := api.StoredPlan(t.Context(), stored.ID)
		if err != nil || p.State != ops.PlanPaused || table.late != 0 {
			t.Errorf("%+v, %d late changes to come, %v", p, table.late, err)
		}
	})
}

// deafTable is a table whose n-th change of a plan happens, and ends the context before its answer.
type deafTable struct {
	*outboxtest.Repository
	n   int
	end context.CancelFunc
}

func (r *deafTable) ChangePlan(ctx context.Context, c ops.PlanChange) (ops.StoredPlan, bool, error) {
	p, ok, err := r.Repository.ChangePlan(ctx, c)
	if r.n--; r.n == 0 {
		r.end()
		return c.Plan, false, context.Canceled
	}
	return p, ok, err
}

// A run whose context ends while a change is stored leaves no plan that seems to run.
func TestRunPlanInterruptedBeforeAnAnswer(t *testing.T) {
	for n := 1; n <= 2; n++ {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		table := &deafTable{Repository: outboxtest.NewRepository(), end: cancel, n: n}
		api, stored := plannedIn(t, table, table.Transactor())
		p, err := api.RunPlan(ctx, stored.ID, ops.RunOptions{Actor: "ada"})
		if !errors.Is(err, context.Canceled) || p.State != ops.PlanPaused {
			t.Errorf("change %d: %s %v", n, p.State, err)
		}
		if p, err = api.StoredPlan(t.Context(), stored.ID); err != nil || p.State != ops.PlanPaused {
			t.Errorf("change %d: %s %v", n, p.State, err)
		}
	}
}

// A relay that publishes slowly is no reason to stop a plan. One that publishes nothing is.
func TestRunPlanWaitsForASlowRelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table, n := outboxtest.NewRepository(), 0
		var repaired atomic.Bool
		ob, err := core.New(core.Config{
			Repository: table, Relay: relay.Config{Workers: 1}, Logger: slog.New(slog.DiscardHandler),
			Publisher: core.PublisherFunc(func(_ context.Context, d core.Delivery) error {
				if d.ReplayOf.IsZero() {
					return nil
				}
				if n++; n > 20 && !repaired.Load() {
					return core.Unavailable(errors.New("nobody is there"))
				}
				time.Sleep(4 * time.Second)
				return nil
			}),
		})
		if err != nil {
			t.Fatal(err)
		}
		err = table.Transactor().RunInTx(t.Context(), func(ctx context.Context, tx core.Tx) error {
			for range 30 {
				if _, err := ob.Publish(ctx, tx, core.Event{Type: "order.placed"}); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := ob.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		api, err := ops.New(ob, table)
		if err != nil {
			t.Fatal(err)
		}
		p, err := api.PlanReplay(t.Context(), ops.Filter{}, ops.ReplayOptions{DedupWindow: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		stored, err := api.StorePlan(t.Context(), p, "ada", "search lost its index")
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- ob.Run(ctx) }()
		// The second stage takes 40 s. In the third one the destination is away after 9 events
		// of 19.
		stored, err = api.RunPlan(t.Context(), stored.ID, ops.RunOptions{Actor: "ada", Wait: 20 * time.Second})
		if !errors.Is(err, ops.ErrPlanStopped) || stored.Position != 30 || stored.Judged != 11 ||
			stored.Succeeded != 11 || !strings.Contains(stored.Note, "10 of 19 events are open, and for 20s none") {
			t.Errorf("%+v %v", stored, err)
		}
		// The stage is judged by the next run: no outcome is left out, and none counts twice.
		repaired.Store(true)
		stored, err = api.RunPlan(t.Context(), stored.ID, ops.RunOptions{Actor: "ada"})
		if err != nil || stored.State != ops.PlanDone || stored.Succeeded != 30 || stored.Failed != 0 {
			t.Errorf("%+v %v", stored, err)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
