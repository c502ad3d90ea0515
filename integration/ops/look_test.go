package ops_test

import (
	"errors"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// A person who sees the content of an event leaves an audit row, and without one sees nothing.
func TestReveal(t *testing.T) {
	t.Parallel()
	testdb.Every(t, func(t *testing.T, db testdb.DB) {
		w := newWorld(t, db, core.Config{})
		w.Publish(core.Event{Type: "paid", Topic: "orders", Payload: []byte(`{"n":1}`)})
		page, err := w.api.List(t.Context(), ops.ListQuery{})
		fixture.Must(t, err == nil && len(page.Events) == 1, "%+v %v", page, err)
		id := page.Events[0].ID
		c, err := w.api.Reveal(t.Context(), id, "ada", "INC-43")
		fixture.Must(t, err == nil && string(c.Payload) == `{"n":1}`, "%s %v", c.Payload, err)
		shown, err := w.api.Show(t.Context(), id.String())
		fixture.NoError(t, err)
		audit := shown[0].Audit
		fixture.Check(t, len(audit) == 1 && audit[0].Action == ops.AuditReveal && audit[0].Actor == "ada" &&
			audit[0].Reason == "INC-43", "%+v", audit)
		for _, wrong := range []error{
			errorOf(w.api.Reveal(t.Context(), id, "", "INC-43")), errorOf(w.api.Reveal(t.Context(), id, "ada", "")),
		} {
			fixture.Check(t, errors.Is(wrong, core.ErrInvalidRequest), "%v", wrong)
		}
		_, err = w.api.Reveal(t.Context(), core.RowID{1}, "ada", "INC-43")
		fixture.Check(t, errors.Is(err, ops.ErrNotFound), "%v", err)
		found, err := w.api.Audit(t.Context(), ops.AuditQuery{Actor: "ada"})
		fixture.Check(t, err == nil && len(found.Records) == 1 && found.Next == 0, "%+v %v", found, err)

		discard, err := w.Outbox.Discard(t.Context(), core.AdminRequest{
			IDs: []core.RowID{id}, Actor: "bob", Reason: "a test order",
		})
		fixture.Must(t, err == nil && discard == 1, "%d %v", discard, err)
		_, err = w.api.Reveal(t.Context(), id, "eve", "curious")
		fixture.NoError(t, err)
		w.wants(page.Events[0].EventID, ops.ReasonDiscarded, []string{"bob discarded it", "a test order"}, nil)
	})
}

func errorOf(_ ops.Content, err error) error { return err }

// Pages of the audit have every row once, whatever they are filtered by.
func TestAuditPages(t *testing.T) {
	t.Parallel()
	testdb.Every(t, func(t *testing.T, db testdb.DB) {
		w := newWorld(t, db, core.Config{})
		for n := range 12 {
			who := []string{"ada", "bob"}[n%2]
			fixture.NoError(t, w.api.Pause(t.Context(), core.PauseRequest{Topic: "orders", Actor: who, Reason: "r"}))
		}
		seen := map[int64]bool{}
		q := ops.AuditQuery{Actor: "bob", Topic: "orders", Action: core.AuditPause, Limit: 4}
		for {
			page, err := w.api.Audit(t.Context(), q)
			fixture.NoError(t, err)
			for _, r := range page.Records {
				fixture.Check(t, r.Actor == "bob" && !seen[r.No], "%+v", r)
				seen[r.No] = true
			}
			if q.Before = page.Next; q.Before == 0 {
				break
			}
		}
		fixture.Check(t, len(seen) == 6, "%d rows", len(seen))
		page, err := w.api.Audit(t.Context(), ops.AuditQuery{Since: time.Now().Add(time.Hour)})
		fixture.Check(t, err == nil && len(page.Records) == 0, "%+v %v", page, err)
		_, err = w.api.Audit(t.Context(), ops.AuditQuery{Before: -1})
		fixture.Check(t, errors.Is(err, core.ErrInvalidRequest), "%v", err)
	})
}

// The backlogs of topics and the blocked keys tell what is there.
func TestDestinationsAndBlockedKeys(t *testing.T) {
	t.Parallel()
	testdb.Every(t, func(t *testing.T, db testdb.DB) {
		w := newPoisoned(t, db, 40, core.BlockKey)
		w.Publish(core.Event{Type: "mailed", Topic: "mail", Delay: time.Hour})
		keys, err := w.api.BlockedKeys(t.Context(), ops.KeyQuery{})
		fixture.Must(t, err == nil && len(keys.Keys) > 1 && !keys.More, "%+v %v", keys, err)
		dead, waiting := 0, 0
		for _, k := range keys.Keys {
			dead, waiting = dead+k.Dead, waiting+k.Waiting.N
			x := w.explain(k.Head.EventID)
			fixture.Check(
				t,
				x.Blocks != nil && *x.Blocks == k.Waiting,
				"key %s: %+v, want %s",
				k.Key,
				x.Blocks,
				k.Waiting,
			)
		}
		all, more, err := w.api.Destinations(t.Context())
		fixture.Must(t, err == nil && !more && len(all) == 3, "%+v %t %v", all, more, err)
		fixture.Check(t, all[0].Topic == "mail" && all[0].Pending == 1 && all[0].Due == 0 && all[0].Dead == 0, "%+v",
			all[0])
		fixture.Check(t, all[1].Topic == "orders" && all[1].Dead >= int64(dead) && all[1].Pending == int64(waiting) &&
			(waiting == 0 || all[1].Oldest > 0), "%+v, %d dead and %d waiting in keys", all[1], dead, waiting)
		few, err := w.api.BlockedKeys(t.Context(), ops.KeyQuery{Topic: "orders", Limit: 1})
		fixture.Check(t, err == nil && len(few.Keys) == 1 && few.More, "%+v %v", few, err)
		none, err := w.api.BlockedKeys(t.Context(), ops.KeyQuery{Topic: "mail"})
		fixture.Check(t, err == nil && len(none.Keys) == 0, "%+v %v", none, err)
	})
}

// A plan that is run a step at a time pauses after each, and goes on with the next stage.
func TestRunPlanBySteps(t *testing.T) {
	t.Parallel()
	testdb.Every(t, func(t *testing.T, db testdb.DB) {
		w := newPoisoned(t, db, 60, core.BlockKey)
		w.Publisher.FailFor(nil)
		defer w.Run()()
		for _, position := range []int{1, 11} {
			p, err := w.run(ops.RunOptions{Steps: 1})
			fixture.Must(t, err == nil && p.State == ops.PlanPaused && p.Position == position && p.Judged == position &&
				p.Succeeded == position, "%+v %v", p, err)
		}
		p, err := w.run(ops.RunOptions{})
		fixture.Check(t, err == nil && p.State == ops.PlanDone && p.Succeeded == p.Events, "%+v %v", p, err)
		_, err = w.run(ops.RunOptions{Steps: -1})
		fixture.Check(t, errors.Is(err, core.ErrInvalidRequest), "%v", err)
	})
}
