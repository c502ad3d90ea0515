package ent_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/entoutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/entclient"
	"github.com/ormoutbox/ormoutbox/integration/internal/entclient/order"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// On passes entities to its function, as the On of GORM and Bun passes models, with one hook or
// several.
func TestEntOn(t *testing.T) {
	t.Parallel()
	eachEnt(t, func(t *testing.T, e *entEnv) {
		entoutbox.On(e.ob, func(op core.Op, o *entclient.Order) []core.Event {
			return []core.Event{{Type: fmt.Sprintf("%s %q", op, o.Name), AggregateType: "order"}}
		})
		e.Use(e.ob.Hook(), e.ob.Hook(onAny(nil)))
		var id int64
		fixture.NoError(t, e.inTx(t, func(tx *entclient.Tx) error {
			o, err := tx.Order.Create().SetName("a").Save(t.Context())
			fixture.NoError(t, err)
			id = o.ID
			fixture.NoError(t, tx.Item.Create().SetName("another type").Exec(t.Context()))
			fixture.NoError(t, o.Update().SetName("b").Exec(t.Context()))
			return tx.Order.DeleteOne(o).Exec(t.Context())
		}))
		key := fmt.Sprint(" ", id)
		e.wantRows(t, "Order.create"+key, `create "a"`+key, "Item.create 1", "Order.update"+key, `update "b"`+key,
			"Order.delete"+key, `delete "b"`+key)
	})
}

// Updates and deletes of many are told row by row, with the whole entity.
func TestEntOnOfMany(t *testing.T) {
	t.Parallel()
	eachEnt(t, func(t *testing.T, e *entEnv) {
		entoutbox.OnContext(e.ob, func(ctx context.Context, op core.Op, o *entclient.Order) ([]core.Event, error) {
			if _, ok := core.TxFromContext(ctx); !ok {
				return nil, errors.New("no transaction in the context")
			}
			return []core.Event{{Type: fmt.Sprintf("%s %s %d", op, o.Name, o.Tenant)}}, nil
		})
		e.Use(e.ob.Hook())
		fixture.NoError(t, e.inTx(t, func(tx *entclient.Tx) error {
			fixture.NoError(t, tx.Order.Create().SetName("a").Exec(t.Context()))
			fixture.NoError(t, tx.Order.Create().SetName("b").Exec(t.Context()))
			fixture.NoError(t, tx.Order.Update().SetTenant(2).Where(order.Name("b")).Exec(t.Context()))
			_, err := tx.Order.Delete().Exec(t.Context())
			return err
		}))
		e.wantRowsInAnyOrder(t, "create a 1 1", "create b 1 2", "update b 2 2", "delete a 1 1",
			"delete b 2 2")
	})
}

func TestEntOnReportsMistakes(t *testing.T) {
	t.Parallel()
	e := openEnt(t, testdb.SQLite(t))
	e.Use(e.ob.Hook())
	entoutbox.On[entclient.Order](e.ob, nil)
	entoutbox.On(e.ob, func(core.Op, **entclient.Order) []core.Event { return nil })
	for name, err := range map[string]error{
		"Run":      e.ob.Run(t.Context()),
		"Publish":  e.ob.Publish(t.Context(), nil),
		"mutation": e.inTx(t, func(tx *entclient.Tx) error { return tx.Order.Create().SetName("a").Exec(t.Context()) }),
	} {
		for _, want := range []string{"was given a nil function", "the type must be the model's struct"} {
			fixture.Check(t, err != nil && strings.Contains(err.Error(), want),
				"%s: %v, want %q in it", name, err, want)
		}
	}
}
