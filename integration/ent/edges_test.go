package ent_test

import (
	"fmt"
	"testing"

	"github.com/google/uuid"

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
		entoutbox.On(e.ob, func(op core.Op, l *entclient.Line) []core.Event {
			return []core.Event{{Type: fmt.Sprintf("%s line %s", op, l.Sku)}}
		})
		e.Use(e.ob.Hook())
		x, y := uuid.New(), uuid.New()
		keyX, keyY := " "+x.String(), " "+y.String()
		e.Line.CreateBulk(e.Line.Create().SetID(x).SetSku("x"), e.Line.Create().SetID(y).SetSku("y")).ExecX(t.Context())
		var all []string
		want := func(more ...string) {
			t.Helper()
			all = append(all, more...)
			e.wantRowsInAnyOrder(t, append([]string{}, all...)...)
		}
		want("create line x"+keyX, "create line y"+keyY)
		a := e.Order.Create().SetName("a").AddLineIDs(x).SaveX(t.Context()) // Ent begins a transaction
		want("create order a 1", "update line x"+keyX)
		fixture.NoError(t, e.inTx(t, func(tx *entclient.Tx) error {
			return tx.Order.UpdateOneID(a.ID).AddLineIDs(y).Exec(t.Context())
		}))
		want("update line y" + keyY)
		fixture.NoError(t, e.Order.UpdateOneID(a.ID).RemoveLineIDs(x).SetCents(3).Exec(t.Context()))
		want("update order a 1", "update line x"+keyX)
		fixture.NoError(t, e.Order.Update().ClearLines().Exec(t.Context()))
		want("update line y" + keyY)
		fixture.NoError(t, e.Order.UpdateOneID(a.ID).AddLineIDs(x, y).Exec(t.Context()))
		want("update line x"+keyX, "update line y"+keyY)
		// A line that has an order already belongs to no other one: Ent rolls back.
		fixture.Check(t, entclient.IsConstraintError(e.Order.Create().SetName("b").AddLineIDs(x).Exec(t.Context())),
			"the line has two orders")
		want()
		e.WantCount(t, "e_orders", 1)
	})
}

// An update that returns some fields, or none, has the whole entity in its event.
func TestEntSelectedFields(t *testing.T) {
	t.Parallel()
	eachEnt(t, func(t *testing.T, e *entEnv) {
		entoutbox.On(e.ob, func(op core.Op, o *entclient.Order) []core.Event {
			return []core.Event{{Type: fmt.Sprintf("%s %s/%s/%d", op, o.Name, o.Status, o.Cents)}}
		})
		e.Use(e.ob.Hook())
		e.plainOrder(t, "a")
		o := e.Order.UpdateOneID(1).SetCents(2).Select("id", "cents").SaveX(t.Context())
		fixture.Check(t, o.Name == "" && o.Cents == 2, "Ent returns %v", o)
		o.Update().SetStatus("paid").ExecX(t.Context())
		e.Order.DeleteOneID(1).ExecX(t.Context())
		e.wantRows(t, "update a/placed/2 1", "update a/paid/2 1", "delete a/paid/2 1")
	})
}
