package ops_test

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

const hour = time.Hour

func scanText(r *sql.Rows) (s string, err error) { return s, r.Scan(&s) }

// Exactly the events of the plan are redriven, in the order of their keys, also those that died
// under SkipDead and are appended. Each gets an audit row.
func TestApplyRedrive(t *testing.T) {
	t.Parallel()
	testdb.Every(t, func(t *testing.T, db testdb.DB) {
		for _, policy := range []core.DeadPolicy{core.BlockKey, core.SkipDead} {
			w := newWorld(t, db.Another(t), core.Config{DeadPolicy: policy})
			for i := range 120 {
				w.Publish(core.Event{Type: "dead.paid", Topic: "orders", Key: fmt.Sprint("k", i%3)},
					core.Event{Type: "dead.paid", Topic: "orders"}, core.Event{Type: "dead.sent", Topic: "orders"},
					core.Event{Type: "dead.paid", Topic: "other"}, core.Event{Type: "dead.paid", Topic: "orders"},
					core.Event{Type: "dead.paid", Topic: "orders"})
			}
			w.drain()
			dead := 120 * 3 // without a key
			blocked := 3    // the first of each key
			if policy == core.SkipDead {
				blocked = 120
			}
			f := ops.Filter{Topic: "orders", Type: "dead.paid"}
			p, err := w.api.PlanRedrive(t.Context(), f, 0)
			fixture.NoError(t, err)
			if len(p.IDs) != dead+blocked || p.Topics["orders"] != len(p.IDs) || len(p.Topics) != 1 ||
				p.Keys != 3 || p.More ||
				p.Oldest.IsZero() ||
				p.Newest.Before(p.Oldest) {
				t.Fatalf("%d events of %d keys, destinations %v", len(p.IDs), p.Keys, p.Topics)
			}
			late := w.Publish(core.Event{Type: "dead.paid", Topic: "orders"})[0]
			w.drain() // these died after the plan was made, so it does not have them

			text, err := json.Marshal(p) // the form in which a plan is stored and approved
			fixture.NoError(t, err)
			var stored ops.Plan
			fixture.NoError(t, json.Unmarshal(text, &stored))
			done, err := w.api.Apply(t.Context(), stored, "ada", "schema registered")
			fixture.Must(t, err == nil && done.Changed == len(p.IDs) && done.Tried == len(p.IDs), "%+v %v", done, err)
			fixture.Check(t, w.one(late).Status == ops.StatusDead, "an event outside of the plan was redriven")
			if done, err = w.api.Apply(t.Context(), stored, "ada", "again"); err != nil || done.Changed != 0 {
				t.Errorf("applied again: %+v %v", done, err)
			}
			audits := fixture.Query(
				t,
				w.Pool,
				"SELECT reason FROM outbox_audit WHERE action = 'redrive' AND actor = 'ada'",
				scanText,
			)
			fixture.Check(t, len(audits) == len(p.IDs) && !slices.Contains(audits, "again"),
				"%d audit rows for %d events", len(audits), len(p.IDs))

			w.Publisher.FailFor(nil)
			w.drain()
			arrivedInOrder(t, w, 120, 3)
			rest := walk(w, ops.ListQuery{Filter: ops.Filter{Statuses: []ops.Status{ops.StatusDead}}, Limit: 1000})
			fixture.Check(t, len(rest) == 120*2+1,
				"%d events are still dead, want those outside of the plan", len(rest))
		}
	})
}

// arrivedInOrder fails the test unless the events of each key were accepted in the order of their
// ids, in which they were published.
func arrivedInOrder(t *testing.T, w *world, events, keys int) {
	t.Helper()
	last, n := map[string]string{}, 0
	for _, d := range w.Publisher.Accepted() {
		if d.Key == "" {
			continue
		}
		n++
		if d.ID <= last[d.Key] {
			t.Errorf("key %s: %s arrived after %s", d.Key, d.ID, last[d.Key])
		}
		last[d.Key] = d.ID
	}
	fixture.Check(t, n == events && len(last) == keys,
		"%d events of %d keys arrived, want %d of %d", n, len(last), events, keys)
}

// Discard ends open events too, if the filter asks for them. It does not change events that a
// process holds.
func TestApplyDiscard(t *testing.T) {
	t.Parallel()
	testdb.Every(t, func(t *testing.T, db testdb.DB) {
		w := newWorld(t, db, core.Config{})
		ids := w.Publish(
			core.Event{Type: "dead.paid", Topic: "orders"},
			core.Event{Type: "retry.paid", Topic: "orders"},
			core.Event{Type: "paid", Topic: "orders"},
		)
		w.drain()
		ids = append(
			ids,
			w.Publish(core.Event{Type: "paid", Topic: "orders"}, core.Event{Type: "paid", Topic: "held"})...)
		p, err := w.api.PlanDiscard(t.Context(), ops.Filter{Topic: "orders"}, 0)
		fixture.Must(t, err == nil && len(p.IDs) == 1 && p.IDs[0] == w.one(ids[0]).ID,
			"a filter without statuses selects the dead events: %+v %v", p, err)
		p, err = w.api.PlanDiscard(t.Context(), ops.Filter{
			Statuses: []ops.Status{ops.StatusNew, ops.StatusRetry, ops.StatusDead},
		}, 0)
		fixture.Must(t, err == nil && len(p.IDs) == 4 && p.Topics["orders"] == 3 && p.Topics["held"] == 1,
			"%+v %v", p, err)
		rows, err := w.Repository.ClaimUnordered(t.Context(), core.ClaimRequest{
			Node: "other", ClaimNo: 1, Lease: hour, MaxLease: 2 * hour, Limit: 9, MaxBytes: 1 << 20, Run: 1, Keys: 1,
			Only: []string{"held"},
		})
		if err != nil || len(rows) != 1 {
			t.Fatal(rows, err)
		}
		done, err := w.api.Apply(t.Context(), p, "ada", "a test")
		fixture.Must(t, err == nil && done.Changed == 3 && done.Tried == 4, "%+v %v", done, err)
		for i, want := range []ops.Status{
			ops.StatusDiscarded, ops.StatusDiscarded, ops.StatusDone, ops.StatusDiscarded, ops.StatusNew,
		} {
			if e := w.one(ids[i]); e.Status != want {
				t.Errorf("event %d is %s, want %s", i, e.Status, want)
			}
		}
	})
}

// A plan of ids has these rows, each once, in the order of their keys. It is refused if the action
// cannot change one of them.
func TestPlanRows(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		w, ctx := newWorld(t, db, core.Config{}), t.Context()
		event := w.Publish(core.Event{Type: "dead.a", Topic: "t", Key: "k"},
			core.Event{Type: "a", Topic: "t", Key: "k"}, core.Event{Type: "dead.a"},
			core.Event{Type: "a"}, core.Event{Type: "dead.b"})
		w.drain()
		var row []core.RowID
		for _, id := range event {
			row = append(row, w.one(id).ID)
		}
		p, err := w.api.PlanRows(ctx, ops.ActionRedrive, row[2], row[0], row[2])
		if err != nil || len(p.IDs) != 2 || p.Keys != 1 || !slices.Contains(p.IDs, row[0]) ||
			!slices.Contains(p.IDs, row[2]) {
			t.Fatalf("%+v %v", p, err)
		}
		discard, err := w.api.PlanRows(ctx, ops.ActionDiscard, row[1], row[0])
		fixture.Must(t, err == nil && slices.Equal(discard.IDs, []core.RowID{row[0], row[1]}), "%+v %v", discard, err)
		for name, plan := range map[string]func() (ops.Plan, error){
			"redrive of a waiting row": func() (ops.Plan, error) {
				return w.api.PlanRows(ctx, ops.ActionRedrive, row[1])
			},
			"discard of a done row": func() (ops.Plan, error) {
				return w.api.PlanRows(ctx, ops.ActionDiscard, row[3])
			},
			"an unknown row": func() (ops.Plan, error) {
				return w.api.PlanRows(ctx, ops.ActionDiscard, row[0], core.RowID{1})
			},
			"replay":  func() (ops.Plan, error) { return w.api.PlanRows(ctx, ops.ActionReplay, row[3]) },
			"nothing": func() (ops.Plan, error) { return w.api.PlanRows(ctx, ops.ActionRedrive) },
			"too many": func() (ops.Plan, error) {
				return w.api.PlanRows(ctx, ops.ActionRedrive, make([]core.RowID, ops.MaxPlan+1)...)
			},
		} {
			if _, err := plan(); !errors.Is(err, core.ErrInvalidRequest) {
				t.Errorf("%s: %v", name, err)
			}
		}
		stored, err := w.api.StorePlan(ctx, discard, "ada", "spam")
		fixture.NoError(t, err)
		stored, err = w.api.RunPlan(ctx, stored.ID, ops.RunOptions{Actor: "ada"})
		fixture.Must(t, err == nil && stored.Changed == 2, "%+v %v", stored, err)
		for i, want := range []ops.Status{
			ops.StatusDiscarded, ops.StatusDiscarded, ops.StatusDead, ops.StatusDone, ops.StatusDead,
		} {
			if got := w.one(event[i]).Status; got != want {
				t.Errorf("event %d is %s, want %s", i, got, want)
			}
		}
	})
}

// A plan is refused and changes nothing if it has no actor, no reason or no events, if a person has
// changed it, or if its action cannot change one of its events.
func TestPlanRefused(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		w, ctx := newWorld(t, db, core.Config{}), t.Context()
		w.Publish(core.Event{Type: "dead.a"}, core.Event{Type: "dead.a"}, core.Event{Type: "dead.b"})
		w.drain()
		p, err := w.api.PlanRedrive(ctx, ops.Filter{Type: "dead.a"}, 1)
		fixture.Must(t, err == nil && len(p.IDs) == 1 && p.More, "a limit of 1: %+v %v", p, err)
		other, err := w.api.PlanRedrive(ctx, ops.Filter{Type: "dead.b"}, 0)
		fixture.NoError(t, err)
		swapped, action, empty := p, p, p
		swapped.IDs = other.IDs
		action.Action = ops.ActionDiscard
		empty.IDs = nil
		for name, c := range map[string]struct {
			p             ops.Plan
			actor, reason string
			want          error
		}{
			"no actor":       {p, "", "r", core.ErrInvalidRequest},
			"no reason":      {p, "ada", "", core.ErrInvalidRequest},
			"no events":      {empty, "ada", "r", core.ErrInvalidRequest},
			"no action":      {ops.Plan{IDs: p.IDs}, "ada", "r", core.ErrInvalidRequest},
			"other events":   {swapped, "ada", "r", ops.ErrPlanChanged},
			"another action": {action, "ada", "r", ops.ErrPlanChanged},
		} {
			if done, err := w.api.Apply(ctx, c.p, c.actor, c.reason); !errors.Is(err, c.want) || done.Changed != 0 {
				t.Errorf("%s: %+v %v", name, done, err)
			}
		}
		for name, plan := range map[string]func() (ops.Plan, error){
			"redrive of open events": func() (ops.Plan, error) {
				return w.api.PlanRedrive(ctx, ops.Filter{Statuses: []ops.Status{ops.StatusNew}}, 0)
			},
			"discard of done events": func() (ops.Plan, error) {
				return w.api.PlanDiscard(ctx, ops.Filter{Statuses: []ops.Status{ops.StatusDone}}, 0)
			},
			"too many events": func() (ops.Plan, error) { return w.api.PlanDiscard(ctx, ops.Filter{}, ops.MaxPlan+1) },
		} {
			if _, err := plan(); !errors.Is(err, core.ErrInvalidRequest) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if n := w.Statuses()[fixture.StatusDead]; n != 3 {
			t.Errorf("%d events are dead, want all 3", n)
		}
	})
}
