package once_test

import (
	"context"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/once/command"
	"github.com/ormoutbox/ormoutbox/core/ops"
	"github.com/ormoutbox/ormoutbox/core/ops/sqlops"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
)

// The effects of a subject are those that its events have caused, and those with its business key.
// They keep their place, and the unfinished ones keep all.
func TestEffectErase(t *testing.T) {
	t.Parallel()
	eachEffectWorld(t, func(t *testing.T, w *effectWorld) {
		event := core.Event{
			ID:            core.NewEventID(),
			Type:          "x",
			Topic:         "x",
			AggregateType: "customer",
			AggregateID:   "42",
			Payload:       []byte("Ada"),
		}
		fixture.NoError(t, w.inTx(func(ctx context.Context, tx core.Tx) error {
			_, err := w.outbox.Publish(ctx, tx, event)
			return err
		}))
		effect := func(key, eventID, business, tenant string) command.Record {
			e := mail(key)
			e.EventID, e.BusinessKey, e.Tenant, e.Payload = eventID, business, tenant, []byte("Ada")
			e.Headers = map[string]string{"name": "Ada"}
			return w.mustEnqueue(e)
		}
		caused, byKey := effect("caused", event.ID, "", ""), effect("by key", "", "customer/42", "t")
		open, other := effect("open", event.ID, "", ""), effect("other", core.NewEventID(), "customer/43", "")
		w.die(caused)
		worker := w.worker(sent)
		fixture.NoError(t, worker.Publish(t.Context(), w.delivery(byKey, 1)))
		fixture.NoError(t, worker.Publish(t.Context(), w.delivery(other, 1)))

		api, err := sqlops.New(w.outbox)
		fixture.NoError(t, err)
		req := ops.EraseRequest{
			AggregateType: "customer", AggregateID: "42", Open: true, Actor: "ada", Reason: "asked to",
		}
		plan, err := api.PlanErase(t.Context(), req)
		if err != nil || plan.Effects != 2 || plan.OpenEffects != 1 {
			t.Fatalf("planned %+v, %v", plan, err)
		}
		read := func(rec command.Record) command.Record {
			t.Helper()
			got, err := w.store.Find(t.Context(), rec.Tenant, rec.Channel, rec.Key)
			fixture.NoError(t, err)
			return got
		}
		before := read(caused)
		tenant := req
		tenant.TenantID = "t"
		got, err := api.Erase(t.Context(), tenant)
		if err != nil || got.Effects != 1 || got.OpenEffects != 0 {
			t.Fatalf("erased %+v, %v", got, err)
		}
		for range 2 {
			got, err = api.Erase(t.Context(), req)
		}
		if err != nil || got.Effects != 0 || got.OpenEffects != 1 {
			t.Fatalf("erased again %+v, %v", got, err)
		}
		for _, rec := range []command.Record{caused, byKey} {
			if r := read(rec); len(r.Payload) > 0 || len(r.Headers) > 0 || r.Error != "" && r.Error != "erased" {
				t.Errorf("effect %s: %+v", rec.Key, r)
			}
		}
		for _, rec := range []command.Record{open, other} {
			if r := read(rec); string(r.Payload) != "Ada" || r.Headers["name"] != "Ada" {
				t.Errorf("effect %s was erased: %+v", rec.Key, r)
			}
		}
		after := read(caused)
		if after.ID != before.ID || after.Status != command.StatusDead || after.EventID != event.ID ||
			before.Error != "no" {
			t.Errorf("the effect was %+v and is %+v", before, after)
		}
		again := mail("caused") // the key is known as before
		again.Tenant, again.BusinessKey = "", ""
		again.EventID, again.Payload, again.Headers = event.ID, []byte("Ada"), map[string]string{"name": "Ada"}
		if rec, added, err := w.enqueue(again); added || err != nil || rec.ID != caused.ID {
			t.Errorf("the effect was added again: %t %+v %v", added, rec, err)
		}
	})
}

// An erased key stays done: its work is not done again.
func TestKeyErase(t *testing.T) {
	t.Parallel()
	eachEffectWorld(t, func(t *testing.T, w *effectWorld) {
		keys := w.keys()
		api, err := sqlops.New(w.outbox)
		fixture.NoError(t, err)
		acquire := func(scope, owner string) once.Acquired {
			t.Helper()
			got, err := keys.Acquire(t.Context(), once.Request{
				Key: once.Key{Scope: scope, ID: "7"}, Owner: owner, Lease: time.Minute, TTL: time.Hour,
			})
			fixture.NoError(t, err)
			return got
		}
		for _, scope := range []string{"a", "b"} {
			claim := once.Claim{
				Key:   once.Key{Scope: scope, ID: "7"},
				Owner: "first",
				Fence: acquire(scope, "first").Fence,
			}
			fixture.NoError(t, keys.Complete(t.Context(), claim, once.Result{
				Data: []byte("Ada"), ContentType: "text/plain", Meta: `{"status":200}`,
			}, time.Hour))
		}
		acquire("c", "first")
		for _, step := range []struct {
			scope        string
			dry          bool
			erased, held int
		}{
			{"a", true, 1, 0},
			{"a", false, 1, 0},
			{"", true, 1, 1},
			{"", false, 1, 1},
			{"", false, 0, 1},
			{"x", false, 0, 0},
		} {
			req := ops.EraseRequest{
				KeyIDs: []string{"7", "absent"}, KeyScope: step.scope, Actor: "ada", Reason: "asked to",
			}
			do := api.Erase
			if step.dry {
				do = api.PlanErase
			}
			got, err := do(t.Context(), req)
			if err != nil || got.Answers != step.erased || got.HeldKeys != step.held {
				t.Errorf("%+v: %+v, %v", step, got, err)
			}
		}
		got := acquire("a", "second")
		if got.State != once.Done || len(got.Result.Data) > 0 || got.Result.ContentType != "" ||
			got.Result.Meta != `{"not_kept":true}` {
			t.Errorf("the key is %+v", got)
		}
	})
}
