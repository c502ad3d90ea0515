package ops_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
)

// A rate spreads the changes over time, and a plan that runs for long keeps its lease.
func TestRunPlanRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ob, err := core.New(core.Config{Repository: outboxtest.NewRepository()})
		if err != nil {
			t.Fatal(err)
		}
		table := ob.Repository().(*outboxtest.Repository)
		err = table.Transactor().RunInTx(t.Context(), func(ctx context.Context, tx core.Tx) (err error) {
			for i := range 100 {
				_, err = ob.Publish(ctx, tx, core.Event{Type: "order.placed", Topic: "orders", Key: fmt.Sprint(i)})
				if err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		api, err := ops.New(ob)
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
		since, last := time.Now(), 0
		stored, err = api.RunPlan(t.Context(), stored.ID, ops.RunOptions{
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
