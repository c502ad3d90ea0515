package ent_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"entgo.io/ent"
	entsql "entgo.io/ent/dialect/sql"
	"github.com/google/uuid"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/entoutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/entclient"
	"github.com/ormoutbox/ormoutbox/integration/internal/entclient/order"
	"github.com/ormoutbox/ormoutbox/integration/internal/entclient/schema"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// An On function sees the stored row with generated ids and defaults, and the operation.
func TestEntCapture(t *testing.T) {
	t.Parallel()
	eachEnt(t, func(t *testing.T, e *entEnv) {
		e.RunRelay(t)
		e.Use(e.ob.Hook(entoutbox.OnMutation(func(
			ctx context.Context, m *entclient.OrderMutation, v ent.Value,
		) ([]core.Event, error) {
			return []core.Event{{Type: "order." + entoutbox.OpOf(ctx).String(), AggregateType: "order", Data: v}}, nil
		})))
		fixture.NoError(t, e.inTx(t, func(tx *entclient.Tx) error {
			o, err := tx.Order.Create().SetName("a").Save(t.Context())
			fixture.NoError(t, err)
			o, err = o.Update().SetTenant(2).Save(t.Context())
			fixture.NoError(t, err)
			fixture.NoError(t, tx.Order.UpdateOneID(o.ID).AddQty(1).Exec(t.Context()))
			return tx.Order.DeleteOne(o).Exec(t.Context())
		}))
		e.wantRows(t, "order.create 1", "order.update 1", "order.update 1", "order.delete 1")
		e.WantHot(t, "order.create", "order.update", "order.update", "order.delete")
		var payload []byte
		fixture.NoError(t, e.Plain.QueryRowContext(t.Context(),
			"SELECT payload FROM outbox_event WHERE event_type = 'order.create'").Scan(&payload))
		var stored struct {
			ID     int
			Tenant int
		}
		fixture.NoError(t, json.Unmarshal(payload, &stored))
		fixture.Must(t, stored.ID == 1 && stored.Tenant == 1, "the payload is %s", payload)
	})
}

// Ids of every kind become texts.
func TestEntCaptureIDs(t *testing.T) {
	t.Parallel()
	eachEnt(t, func(t *testing.T, e *entEnv) {
		e.Use(e.ob.Hook(onAny(nil)))
		fixture.NoError(t, e.inTx(t, func(tx *entclient.Tx) error {
			fixture.NoError(t, tx.Document.Create().SetID("SUMMER").Exec(t.Context()))
			fixture.NoError(t, tx.Tag.Create().SetID(7).SetName("7a").Exec(t.Context()))
			return tx.Document.DeleteOneID("SUMMER").Exec(t.Context())
		}))
		e.wantRows(t, "Document.create SUMMER", "Tag.create 7", "Document.delete SUMMER")
	})
}

// Outside of a transaction, a statement that causes events gets one of its own. A pool of one
// connection is enough, also for a bulk, whose hooks run one within the other.
func TestEntCaptureWithoutTransaction(t *testing.T) {
	t.Parallel()
	eachEnt(t, func(t *testing.T, e *entEnv) {
		tag := e.Tag.Create().SetName("x").SaveX(t.Context())
		c := e.Document.Create().SetID("X").SaveX(t.Context())
		calls := 0
		e.Use(e.ob.Hook(onAny(&calls)))
		e.drv.(*entsql.Driver).DB().SetMaxOpenConns(1)
		for _, mutate := range []func() error{
			func() error { return e.Order.Create().SetName("a").Exec(t.Context()) },
			func() error { return e.Order.Create().SetName("b").AddTags(tag).Exec(t.Context()) },
			func() error {
				return e.Order.Create().SetName("c").OnConflict(entsql.ConflictColumns(order.FieldName),
					entsql.ResolveWithNewValues()).Exec(t.Context())
			},
			func() error {
				return e.Order.CreateBulk(e.Order.Create().SetName("d"),
					e.Order.Create().SetName("e")).Exec(t.Context())
			},
			func() error { return quiet(e).Debug().Order.Create().SetName("f").Exec(t.Context()) },
			func() error { return c.Update().SetStock(1).Exec(t.Context()) },
			func() error { return e.Document.DeleteOne(c).Exec(t.Context()) },
		} {
			fixture.NoError(t, mutate())
		}
		fixture.Check(t, calls == 7, "the mapper was called %d times", calls)
		e.wantRowsInAnyOrder(t, "Order.create 1", "Order.create 2", "Order.upsert 3", "Order.create 4",
			"Order.create 5", "Order.create 6", "Document.update X", "Document.delete X")
		e.WantCount(t, "parents", 6)
		e.WantCount(t, "capture_documents", 0)
	})
}

// quiet is a client whose Debug version writes nothing.
func quiet(e *entEnv) *entclient.Client {
	c := entclient.NewClient(entclient.Driver(e.ob.Driver()), entclient.Log(func(...any) {}))
	c.Use(e.ob.Hook(onAny(nil)))
	return c
}

// Mutations of types without an On function pass, with or without a transaction.
func TestEntCaptureOnlyItsTypes(t *testing.T) {
	t.Parallel()
	e := openEnt(t, testdb.SQLite(t))
	e.Use(e.ob.Hook(entoutbox.OnMutation(func(
		context.Context, *entclient.OrderMutation, ent.Value,
	) ([]core.Event, error) {
		return []core.Event{fixture.Event("order")}, nil
	})))
	e.Item.Create().SetName("x").ExecX(t.Context())
	e.Item.Update().SetName("y").ExecX(t.Context())
	fixture.NoError(t,
		e.inTx(t, func(tx *entclient.Tx) error { return tx.Order.Create().SetName("a").Exec(t.Context()) }))
	e.wantRows(t, "order 1")
}

// Ent calls the hooks of a bulk one within the other, but the events are in the order of the
// builders.
func TestEntCaptureBulkInOrder(t *testing.T) {
	t.Parallel()
	eachEnt(t, func(t *testing.T, e *entEnv) {
		e.RunRelay(t)
		byName := entoutbox.OnMutation(func(
			ctx context.Context, m *entclient.OrderMutation, _ ent.Value,
		) ([]core.Event, error) {
			name, _ := m.Name()
			return []core.Event{
				{Type: name + "." + entoutbox.OpOf(ctx).String(), Topic: "all", Key: "all"},
				{Type: name + ".too", Topic: "all", Key: "all"},
			}, nil
		})
		e.Use(e.ob.Hook(byName), e.ob.Hook(onAny(nil)), func(next ent.Mutator) ent.Mutator { // the application's hook
			return ent.MutateFunc(func(ctx context.Context, m ent.Mutation) (ent.Value, error) {
				if m.Type() == "Order" { // it creates another entity meanwhile
					if err := m.(*entclient.OrderMutation).Client().Document.Create().SetID(
						uuid.NewString()[:8],
					).Exec(context.Background()); err != nil {
						return nil, err
					}
				}
				return next.Mutate(ctx, m)
			})
		})
		names := []string{"a", "b", "c", "d"}
		fixture.NoError(t, e.inTx(t, func(tx *entclient.Tx) error {
			orders, err := tx.Order.MapCreateBulk(names,
				func(c *entclient.OrderCreate, i int) { c.SetName(names[i]) }).Save(t.Context())
			fixture.NoError(t, err)
			fixture.Check(t, len(orders) == 4, "%d orders", len(orders))
			return nil
		}))
		var rows []string
		for i, name := range names {
			rows = append(rows, fmt.Sprintf("%s.create %d", name, i+1), fmt.Sprintf("%s.too %d", name, i+1))
		}
		got := e.types(t, "Document.create", "Order.create")
		fixture.Must(t, strings.Join(got, ",") == strings.Join(rows, ","), "the events are %q, want %q", got, rows)
		if n := len(e.types(t)) - len(rows); n != 8 {
			t.Fatalf("%d events of the second hook, want one of each order and document", n)
		}
	})
}

// types returns the types of the events in the table, without those given, in the order of their
// insertion. The order is exact for events of one key.
func (e *entEnv) types(t *testing.T, without ...string) []string {
	t.Helper()
	text := "SELECT event_type, COALESCE(aggregate_id, '-') FROM outbox_event WHERE event_type <> '" +
		fixture.SentinelType + "' ORDER BY COALESCE(key_seq, 0), event_id"
	all := fixture.Query(t, e.Plain, text, func(rows *sql.Rows) ([2]string, error) {
		var event [2]string
		err := rows.Scan(&event[0], &event[1])
		return event, err
	})
	var got []string
	for _, event := range all {
		if !slices.Contains(without, event[0]) {
			got = append(got, event[0]+" "+event[1])
		}
	}
	return got
}

// plainOrder stores an order without the hooks.
func (e *entEnv) plainOrder(t *testing.T, name string) {
	t.Helper()
	_, err := e.Plain.ExecContext(t.Context(), "INSERT INTO parents (name, qty, tenant, updated_at) VALUES ('"+
		name+"', 0, 1, 0)")
	fixture.NoError(t, err)
}

// The database says which entities updates and deletes of many change.
func TestEntCaptureMany(t *testing.T) {
	t.Parallel()
	eachEnt(t, func(t *testing.T, e *entEnv) {
		e.Use(e.ob.Hook(onAny(nil)))
		for _, name := range []string{"a", "b", "c"} {
			e.plainOrder(t, name)
		}
		update := e.Order.Update().Where(order.NameIn("a", "c")).SetQty(5).Exec
		fixture.NoError(t, update(t.Context()))
		n, err := e.Order.Delete().Where(order.NameNEQ("a")).Exec(t.Context())
		fixture.NoError(t, err)
		fixture.Check(t, n == 2, "%d were deleted", n)
		fixture.NoError(t, update(t.Context())) // it has the values already
		e.WantCount(t, "parents WHERE qty = 5", 1)
		e.wantRowsInAnyOrder(t, "Order.update 1", "Order.update 3", "Order.delete 2", "Order.delete 3",
			"Order.update 1")
	})
}

func TestEntCaptureOfNothing(t *testing.T) {
	t.Parallel()
	eachEnt(t, func(t *testing.T, e *entEnv) {
		e.Use(e.ob.Hook(onAny(nil)))
		fixture.NoError(t, e.inTx(t, func(tx *entclient.Tx) error {
			if err := tx.Order.UpdateOneID(42).SetQty(1).Exec(t.Context()); !entclient.IsNotFound(err) {
				t.Errorf("update: %v", err)
			}
			if err := tx.Order.DeleteOneID(42).Exec(t.Context()); !entclient.IsNotFound(err) {
				t.Errorf("delete: %v", err)
			}
			return nil
		}))
		e.wantRows(t)
	})
}

// Edges to many entities take several statements, but the entity has one event.
func TestEntCaptureEdges(t *testing.T) {
	t.Parallel()
	eachEnt(t, func(t *testing.T, e *entEnv) {
		e.Use(e.ob.Hook(onAny(nil)))
		fixture.NoError(t, e.inTx(t, func(tx *entclient.Tx) error {
			tag, err := tx.Tag.Create().SetName("x").Save(t.Context())
			fixture.NoError(t, err)
			child, err := tx.Child.Create().SetID("k").SetName("y").Save(t.Context())
			fixture.NoError(t, err)
			fixture.NoError(t, tx.Order.Create().SetName("a").AddTags(tag).AddChildren(child).Exec(t.Context()))
			// Edges that exist already are skipped. That is no sign that an entity was skipped.
			other, err := tx.Tag.Create().SetName("y").Save(t.Context())
			fixture.NoError(t, err)
			fixture.NoError(t, tx.Order.Create().SetName("b").AddTags(tag, other).Exec(t.Context()))
			return tx.Order.CreateBulk(tx.Order.Create().SetName("c").AddTags(tag, other),
				tx.Order.Create().SetName("d").AddTags(tag)).Exec(t.Context())
		}))
		e.wantRowsInAnyOrder(t, "Tag.create 1", "Child.create k", "Order.create 1", "Tag.create 2",
			"Order.create 2", "Order.create 3", "Order.create 4")
		e.WantCount(t, "parents_tags", 6)
	})
}

// The error of an On function is that of the mutation.
func TestEntCaptureError(t *testing.T) {
	t.Parallel()
	eachEnt(t, func(t *testing.T, e *entEnv) {
		e.Use(e.ob.Hook(entoutbox.OnMutation(func(
			context.Context, *entclient.OrderMutation, ent.Value,
		) ([]core.Event, error) {
			return nil, fixture.ErrNoStock
		})))
		fixture.WantError(t,
			e.inTx(t, func(tx *entclient.Tx) error { return tx.Order.Create().SetName("a").Exec(t.Context()) }),
			fixture.ErrNoStock)
		fixture.WantError(t, e.inTx(t, func(tx *entclient.Tx) error {
			return tx.Order.CreateBulk(tx.Order.Create().SetName("b"), tx.Order.Create().SetName("c")).Exec(t.Context())
		}), fixture.ErrNoStock)
		e.WantCount(t, "parents", 0)
	})
}

// Mutations of an On function are captured too.
func TestEntCaptureWithinMapper(t *testing.T) {
	t.Parallel()
	eachEnt(t, func(t *testing.T, e *entEnv) {
		e.Use(e.ob.Hook(entoutbox.OnMutation(func(
			ctx context.Context, m *entclient.OrderMutation, _ ent.Value,
		) ([]core.Event, error) {
			name, _ := m.Name()
			if strings.HasPrefix(name, "copy") {
				return []core.Event{{Type: name}}, nil
			}
			if err := m.Client().Order.Create().SetName("copy of " + name).Exec(ctx); err != nil {
				return nil, err
			}
			if err := e.ob.Publish(ctx, nil, core.Event{Type: "said"}); err != nil {
				return nil, err
			}
			return []core.Event{{Type: name}}, e.ob.Publish(ctx, m, core.Event{Type: "said again"})
		})))
		fixture.NoError(t,
			e.inTx(t, func(tx *entclient.Tx) error { return tx.Order.Create().SetName("a").Exec(t.Context()) }))
		e.wantRows(t, "copy of a 2", "said", "said again", "a 1")
		fixture.WantError(t, e.ob.Publish(t.Context(), nil, fixture.Event("outside")), core.ErrNoTransaction)
		if op := entoutbox.OpOf(t.Context()); op != 0 {
			t.Errorf("OpOf outside is %s", op)
		}
	})
}

// Policies and hooks of the schema run within the hook of the outbox, whatever the order in which
// hooks of the client are registered.
func TestEntCaptureWithPolicyAndHooks(t *testing.T) {
	t.Parallel()
	eachEnt(t, func(t *testing.T, e *entEnv) {
		rename := func(next ent.Mutator) ent.Mutator {
			return ent.MutateFunc(func(ctx context.Context, m ent.Mutation) (ent.Value, error) {
				if m.Op().Is(ent.OpCreate) {
					if owner, _ := m.(*entclient.SoftMutation).Name(); owner == "ada" {
						if err := m.SetField("name", "ADA"); err != nil {
							return nil, err
						}
					}
				}
				return next.Mutate(ctx, m)
			})
		}
		e.Soft.Use(rename)
		e.Use(e.ob.Hook(entoutbox.OnMutation(func(
			_ context.Context, m *entclient.SoftMutation, v ent.Value,
		) ([]core.Event, error) {
			owner, _ := m.Name()
			if stored := v.(*entclient.Soft).Name; stored != owner {
				t.Errorf("stored for %q, the mutation says %q", stored, owner)
			}
			return []core.Event{{Type: "secret of " + owner}}, nil
		})))
		e.Soft.Use(rename)
		fixture.NoError(t, e.inTx(t, func(tx *entclient.Tx) error {
			fixture.NoError(t, tx.Soft.Create().SetName("ada").Exec(t.Context()))
			fixture.NoError(t, tx.Soft.Create().SetName("nobody").Exec(t.Context()))
			fixture.WantError(t, tx.Soft.Create().SetName("thief").Exec(t.Context()), schema.ErrDenied)
			return nil
		}))
		e.wantRows(t, "secret of ADA 1", "secret of somebody 2")
	})
}

// A hook of the schema that turns a delete into an update starts the mutation again, with all
// hooks. The entity has one event.
func TestEntCaptureSoftDelete(t *testing.T) { // not parallel: the schema's hook is global

	t.Parallel()
	schema.Deleter = func(ctx context.Context, m ent.Mutation) (ent.Value, error) {
		return m.(*entclient.SoftMutation).Client().Mutate(ctx, m)
	}
	t.Cleanup(func() { schema.Deleter = nil })
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		e := openEnt(t, db)
		e.Use(e.ob.Hook(onAny(nil)), e.ob.Hook(onAny(nil)))
		fixture.NoError(t, e.inTx(t, func(tx *entclient.Tx) error {
			s, err := tx.Soft.Create().SetName("ada").Save(t.Context())
			fixture.NoError(t, err)
			return tx.Soft.DeleteOne(s).Exec(t.Context())
		}))
		e.wantRows(t, "Soft.create 1", "Soft.create 1", "Soft.delete 1", "Soft.delete 1")
		e.WantCount(t, "softs WHERE deleted_at IS NOT NULL", 1)
	})
}

// Every method that matters reports mistakes in the arguments of Hook.
func TestEntHookReportsMistakes(t *testing.T) {
	t.Parallel()
	for name, mapper := range map[string]entoutbox.Mapper{
		"nil function": entoutbox.OnMutation[*entclient.OrderMutation](nil),
		"did not make": {},
	} {
		e := openEnt(t, testdb.SQLite(t))
		e.Use(e.ob.Hook(mapper))
		for what, err := range map[string]error{
			"mutation": e.Item.Create().SetName("x").Exec(t.Context()),
			"Publish":  e.ob.Publish(t.Context(), nil, fixture.Event("x")),
			"Run":      e.ob.Run(t.Context()),
			"Drain":    e.ob.Drain(t.Context()),
		} {
			fixture.Check(t, err != nil && strings.Contains(err.Error(), name), "%s of %s: %v", name, what, err)
		}
	}
}
