package ent_test

import (
	"fmt"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/entoutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/entclient"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
)

// Edges are foreign keys of other rows: these rows change, and are told. The owner is told if a row
// of its own changes.
func TestEntEdges(t *testing.T) {
	t.Parallel()
	eachEnt(t, func(t *testing.T, e *entEnv) {
		entoutbox.On(e.ob, func(op core.Op, o *entclient.Order) []core.Event {
			return []core.Event{{Type: fmt.Sprintf("%s order %s", op, o.Name)}}
		})
		entoutbox.On(e.ob, func(op core.Op, l *entclient.Child) []core.Event {
			return []core.Event{{Type: fmt.Sprintf("%s child %s", op, l.Name)}}
		})
		e.Use(e.ob.Hook())
		const x, y = "x", "y"
		e.Child.CreateBulk(e.Child.Create().SetID(x).SetName("x"), e.Child.Create().SetID(y).SetName("y")).
			ExecX(t.Context())
		var all []string
		want := func(more ...string) {
			t.Helper()
			all = append(all, more...)
			e.wantRowsInAnyOrder(t, append([]string{}, all...)...)
		}
		want("create child x x", "create child y y")
		a := e.Order.Create().SetName("a").AddChildIDs(x).SaveX(t.Context()) // Ent begins a transaction
		want("create order a 1", "update child x x")
		fixture.NoError(t, e.inTx(t, func(tx *entclient.Tx) error {
			return tx.Order.UpdateOneID(a.ID).AddChildIDs(y).Exec(t.Context())
		}))
		want("update child y y")
		fixture.NoError(t, e.Order.UpdateOneID(a.ID).RemoveChildIDs(x).SetQty(3).Exec(t.Context()))
		want("update order a 1", "update child x x")
		fixture.NoError(t, e.Order.Update().ClearChildren().Exec(t.Context()))
		want("update child y y")
		fixture.NoError(t, e.Order.UpdateOneID(a.ID).AddChildIDs(x, y).Exec(t.Context()))
		want("update child x x", "update child y y")
		// A child that has an order already belongs to no other one: Ent rolls back.
		fixture.Check(t, entclient.IsConstraintError(e.Order.Create().SetName("b").AddChildIDs(x).Exec(t.Context())),
			"the child has two orders")
		want()
		e.WantCount(t, "parents", 1)
	})
}

// An update that returns some fields, or none, has the whole entity in its event.
func TestEntSelectedFields(t *testing.T) {
	t.Parallel()
	eachEnt(t, func(t *testing.T, e *entEnv) {
		entoutbox.On(e.ob, func(op core.Op, o *entclient.Order) []core.Event {
			return []core.Event{{Type: fmt.Sprintf("%s %s/%d/%d", op, o.Name, o.Tenant, o.Qty)}}
		})
		e.Use(e.ob.Hook())
		e.plainOrder(t, "a")
		o := e.Order.UpdateOneID(1).SetQty(2).Select("id", "qty").SaveX(t.Context())
		fixture.Check(t, o.Name == "" && o.Qty == 2, "Ent returns %v", o)
		o.Update().SetTenant(2).ExecX(t.Context())
		e.Order.DeleteOneID(1).ExecX(t.Context())
		e.wantRows(t, "update a/1/2 1", "update a/2/2 1", "delete a/2/2 1")
	})
}
