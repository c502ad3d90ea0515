package ent_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"entgo.io/ent"
	entsql "entgo.io/ent/dialect/sql"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/entoutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/entclient"
	"github.com/ormoutbox/ormoutbox/integration/internal/entclient/order"
	"github.com/ormoutbox/ormoutbox/integration/internal/entclient/tag"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
)

// The cases here are about one question: which rows did this mutation change? An event is written
// if, and only if, the database said that its row was changed.

// onOrders reports orders by name, with the entity as its data.
func onOrders() entoutbox.Mapper {
	return entoutbox.OnMutation(func(
		ctx context.Context, m *entclient.OrderMutation, v ent.Value,
	) ([]core.Event, error) {
		if o, ok := v.(*entclient.Order); ok {
			return []core.Event{{Type: entoutbox.OpOf(ctx).String() + "." + o.Name, Data: o}}, nil
		}
		return []core.Event{{Type: entoutbox.OpOf(ctx).String(), Data: v}}, nil
	})
}

// qty returns the amounts in the payloads of all events, by type.
func (e *entEnv) qty(t *testing.T) map[string]int {
	t.Helper()
	rows, err := e.Plain.QueryContext(t.Context(), "SELECT event_type, payload FROM outbox_event")
	fixture.NoError(t, err)
	defer rows.Close()
	got := map[string]int{}
	for rows.Next() {
		var typ string
		var payload []byte
		fixture.NoError(t, rows.Scan(&typ, &payload))
		var o struct{ Qty int }
		fixture.NoError(t, json.Unmarshal(payload, &o))
		got[typ] = o.Qty
	}
	fixture.NoError(t, rows.Err())
	return got
}

// orderHook makes a hook for orders.
func orderHook(fn func(ctx context.Context, m *entclient.OrderMutation,
	next func() (ent.Value, error)) (ent.Value, error),
) ent.Hook {
	return func(next ent.Mutator) ent.Mutator {
		return ent.MutateFunc(func(ctx context.Context, m ent.Mutation) (ent.Value, error) {
			om, ok := m.(*entclient.OrderMutation)
			if !ok {
				return next.Mutate(ctx, m)
			}
			return fn(ctx, om, func() (ent.Value, error) { return next.Mutate(ctx, m) })
		})
	}
}

// One create runs within another of the same type, and the outer one is refused. The inner one
// still has its event, with any context.
func TestEntCreateWithinACreateThatIsRefused(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]func(outer context.Context) context.Context{
		"its context":       func(outer context.Context) context.Context { return outer },
		"another context":   func(context.Context) context.Context { return context.Background() },
		"another goroutine": nil,
		"a bulk in it":      func(context.Context) context.Context { return context.Background() },
	} {
		t.Run(name, func(t *testing.T) {
			eachEnt(t, func(t *testing.T, e *entEnv) {
				e.Use(e.ob.Hook(onOrders()),
					orderHook(func(
						ctx context.Context, m *entclient.OrderMutation, next func() (ent.Value, error),
					) (ent.Value, error) {
						if by, _ := m.Name(); by != "outer" {
							return next()
						}
						inner := m.Client().Order.Create().SetName("inner").Exec
						if name == "a bulk in it" {
							inner = m.Client().Order.CreateBulk(m.Client().Order.Create().SetName("inner"),
								m.Client().Order.Create().SetName("second")).Exec
						}
						var err error
						if of == nil {
							ended := make(chan error)
							go func() { ended <- inner(context.Background()) }()
							err = <-ended
						} else {
							err = inner(of(ctx))
						}
						return nil, errors.Join(fixture.ErrNoStock, err)
					}))
				fixture.NoError(t, e.inTx(t, func(tx *entclient.Tx) error {
					fixture.WantError(t, tx.Order.Create().SetName("outer").Exec(t.Context()), fixture.ErrNoStock)
					return nil // no row of the bulk was stored
				}))
				if name == "a bulk in it" {
					e.wantRows(t, "create.inner 1", "create.second 2")
					return
				}
				e.WantCount(t, "parents", 1)
				e.wantRows(t, "create.inner 1")
			})
		})
	}
}

// The outbox's hook may apply to some builders of a bulk only, and other hooks may surround it. On
// sees all rows.
func TestEntHookForSomeOfABulk(t *testing.T) {
	t.Parallel()
	eachEnt(t, func(t *testing.T, e *entEnv) {
		entoutbox.On(e.ob, func(op core.Op, o *entclient.Order) []core.Event {
			return []core.Event{{Type: op.String() + "." + o.Name}}
		})
		plain := e.ob.Hook()
		e.Use(func(next ent.Mutator) ent.Mutator {
			return ent.MutateFunc(func(ctx context.Context, m ent.Mutation) (ent.Value, error) {
				if name, _ := m.Field("name"); name == "quiet" {
					return next.Mutate(ctx, m)
				}
				return plain(next).Mutate(ctx, m)
			})
		},
			orderHook(func(
				_ context.Context, m *entclient.OrderMutation, next func() (ent.Value, error),
			) (ent.Value, error) {
				name, _ := m.Name()
				if name == "refused" || name == "outer" {
					c := m.Client()
					if err := c.Order.CreateBulk(c.Order.Create().SetName("quiet"),
						c.Order.Create().SetName(name+"'s")).Exec(context.Background()); err != nil {
						return nil, err
					}
					if _, err := c.Order.Delete().Where(order.Name("quiet")).Exec(context.Background()); err != nil {
						return nil, err
					}
				}
				if name == "refused" {
					return nil, fixture.ErrNoStock
				}
				return next()
			}))
		fixture.NoError(t, e.inTx(t, func(tx *entclient.Tx) error {
			fixture.WantError(t, tx.Order.Create().SetName("refused").Exec(t.Context()), fixture.ErrNoStock)
			return tx.Order.Create().SetName("outer").Exec(t.Context())
		}))
		want := []string{
			"create.outer 5", "create.outer's 4", "create.refused's 2", "create.quiet 1", "create.quiet 3",
			"delete.quiet 1", "delete.quiet 3",
		}
		e.wantRowsInAnyOrder(t, want...)
		e.WantCount(t, "parents", 3)
	})
}

// If a hook returns a value instead of executing the mutation, no row is stored and there is no
// event.
func TestEntHookAnswersInPlaceOfTheMutation(t *testing.T) {
	t.Parallel()
	eachEnt(t, func(t *testing.T, e *entEnv) {
		e.Use(e.ob.Hook(onOrders()),
			orderHook(func(
				_ context.Context, m *entclient.OrderMutation, next func() (ent.Value, error),
			) (ent.Value, error) {
				switch name, _ := m.Name(); {
				case m.Op().Is(ent.OpDelete | ent.OpDeleteOne):
					return 1, nil
				case name == "there":
					return &entclient.Order{ID: 77, Name: "there"}, nil
				}
				return next()
			}))
		fixture.NoError(t, e.inTx(t, func(tx *entclient.Tx) error {
			fixture.NoError(t, tx.Order.Create().SetName("there").Exec(t.Context()))
			fixture.NoError(t, tx.Order.Create().SetName("stored").Exec(t.Context()))
			return tx.Order.DeleteOneID(1).Exec(t.Context())
		}))
		e.wantRows(t, "create.stored 1")
		e.WantCount(t, "parents", 1)
	})
}

// A row was stored, and then a hook returned an error. The row and its event go together: both are
// kept by a program that ignores the error, and both are gone after a rollback to a savepoint.
func TestEntErrorAfterTheRowWasStored(t *testing.T) {
	t.Parallel()
	eachEnt(t, func(t *testing.T, e *entEnv) {
		e.Use(e.ob.Hook(onOrders()),
			orderHook(func(
				_ context.Context, m *entclient.OrderMutation, next func() (ent.Value, error),
			) (ent.Value, error) {
				v, err := next()
				if name, _ := m.Name(); name == "late" {
					err = errors.Join(err, fixture.ErrNoStock)
				}
				return v, err
			}))
		fixture.WantError(t, e.Order.Create().SetName("late").Exec(t.Context()), fixture.ErrNoStock)
		e.wantRows(t, "create.late 1")
		_, err := e.Plain.ExecContext(t.Context(), "DELETE FROM parents")
		fixture.NoError(t, err)
		fixture.NoError(t, e.inTx(t, func(tx *entclient.Tx) error {
			fixture.NoError(t, tx.Order.Create().SetName("a").Exec(t.Context()))
			fixture.WantError(t, tx.Order.Create().SetName("late").Exec(t.Context()), fixture.ErrNoStock)
			return nil
		}))
		e.WantCount(t, "parents", 2)
		fixture.Check(t, len(e.types(t)) == 3, "the events are %q", e.types(t))
		fixture.NoError(t, e.inTx(t, func(tx *entclient.Tx) error {
			fixture.NoError(t, tx.Order.Create().SetName("b").Exec(t.Context()))
			for _, query := range []string{"SAVEPOINT s", "ROLLBACK TO SAVEPOINT s"} {
				_, err := tx.ExecContext(t.Context(), query)
				fixture.NoError(t, err)
				if query == "SAVEPOINT s" {
					fixture.NoError(t, tx.Order.CreateBulk(tx.Order.Create().SetName("c"),
						tx.Order.Create().SetName("d")).Exec(t.Context()))
				}
			}
			return nil
		}))
		e.WantCount(t, "parents", 3)
		if got := e.types(t); len(got) != 4 || !strings.HasPrefix(got[3], "create.b") {
			t.Fatalf("the events are %q, want that of b as the last", got)
		}
	})
}

// A create whose row a hook rolls back to a savepoint leaves no event.
func TestEntCreateThatAHookUndoes(t *testing.T) {
	t.Parallel()
	eachEnt(t, func(t *testing.T, e *entEnv) {
		e.Use(e.ob.Hook(onOrders()),
			orderHook(func(
				ctx context.Context, m *entclient.OrderMutation, next func() (ent.Value, error),
			) (ent.Value, error) {
				if name, _ := m.Name(); name != "undone" {
					return next()
				}
				if _, err := m.ExecContext(ctx, "SAVEPOINT s"); err != nil {
					return nil, err
				}
				v, err := next()
				if _, undo := m.ExecContext(ctx, "ROLLBACK TO SAVEPOINT s"); undo != nil {
					return nil, undo
				}
				return v, err
			}))
		fixture.NoError(t, e.inTx(t, func(tx *entclient.Tx) error {
			fixture.NoError(t, tx.Order.Create().SetName("undone").Exec(t.Context()))
			return tx.Order.Create().SetName("kept").Exec(t.Context())
		}))
		e.WantCount(t, "parents", 1)
		if got := e.types(t); len(got) != 1 || got[0][:11] != "create.kept" {
			t.Fatalf("the events are %q, want that of kept", got)
		}
	})
}

// An upsert of several entities can leave some out. Those that were stored are told.
func TestEntUpsertThatLeavesSomeOut(t *testing.T) {
	t.Parallel()
	eachEnt(t, func(t *testing.T, e *entEnv) {
		e.Use(e.ob.Hook(onOrders()))
		e.plainOrder(t, "a")
		if e.db.Dialect == core.MySQL {
			t.Log("this database has no upsert that skips rows")
			return
		}
		upsert := func(tx *entclient.Tx, names ...string) error {
			return tx.Order.MapCreateBulk(names,
				func(c *entclient.OrderCreate, i int) { c.SetName(names[i]).SetQty(5) }).
				OnConflict(entsql.ConflictColumns(order.FieldName), entsql.ResolveWithNewValues(),
					entsql.UpdateWhere(entsql.P(func(b *entsql.Builder) {
						b.WriteString("parents.qty > 7")
					}))).Exec(t.Context())
		}
		fixture.NoError(t, e.inTx(t, func(tx *entclient.Tx) error { return upsert(tx, "a", "b", "c") }))
		e.WantCount(t, "parents", 3)
		fixture.NoError(t, e.inTx(t, func(tx *entclient.Tx) error { return upsert(tx, "d", "e") }))
		got := e.types(t)
		for i, name := range []string{"b", "c", "d", "e"} {
			fixture.Check(t, len(got) == 4 && strings.HasPrefix(got[i], "upsert."+name), "the events are %q", got)
		}
	})
}

// An update of one entity changes no row, because the row does not exist or does not match the
// condition.
func TestEntUpdateOneThatChangesNothing(t *testing.T) {
	t.Parallel()
	eachEnt(t, func(t *testing.T, e *entEnv) {
		e.Use(e.ob.Hook(onOrders()))
		e.plainOrder(t, "a")
		fixture.NoError(t, e.inTx(t, func(tx *entclient.Tx) error {
			paid := tx.Order.UpdateOneID(1).Where(order.Tenant(2)).SetQty(1).Exec(t.Context())
			fixture.Check(t, entclient.IsNotFound(paid), "update: %v", paid)
			if err := tx.Order.DeleteOneID(1).Where(
				order.Tenant(2),
			).Exec(t.Context()); !entclient.IsNotFound(err) {
				t.Errorf("delete: %v", err)
			}
			return tx.Order.UpdateOneID(1).Exec(t.Context()) // sets nothing
		}))
		e.wantRows(t)
		fixture.NoError(t, e.inTx(t, func(tx *entclient.Tx) error {
			fixture.NoError(t, tx.Order.UpdateOneID(1).SetTenant(1).Exec(t.Context())) // the same value
			fixture.NoError(t,
				tx.Order.UpdateOneID(1).Where(order.Tenant(1)).SetTenant(2).AddQty(3).Exec(t.Context()))
			shared, err := tx.Tag.Create().SetName("x").Save(t.Context())
			fixture.NoError(t, err)
			return tx.Order.UpdateOneID(1).AddTags(shared).Exec(t.Context()) // an edge in another table
		}))
		// A row that has these values already counts, an edge in another table does not.
		e.wantRows(t, "update.a 1", "update.a 1")
		if got := e.qty(t); got["update.a"] != 3 {
			t.Fatalf("the payload says %v, want 3", got)
		}
	})
}

// Updates and deletes of many entities are told entity by entity, in and outside of transactions.
func TestEntMany(t *testing.T) {
	t.Parallel()
	eachEnt(t, func(t *testing.T, e *entEnv) {
		e.Use(e.ob.Hook(onOrders()))
		for _, name := range []string{"a", "b", "c"} {
			e.plainOrder(t, name)
		}
		fixture.NoError(t, e.inTx(t, func(tx *entclient.Tx) error {
			n, err := tx.Order.Update().Where(order.NameIn("a", "c")).AddQty(7).Save(t.Context())
			fixture.Check(t, n == 2, "%d were changed", n)
			return err
		}))
		e.wantRowsInAnyOrder(t, "update.a 1", "update.c 3")
		if got := e.qty(t); got["update.a"] != 7 || got["update.c"] != 7 {
			t.Fatalf("the payloads say %v", got)
		}
		_, err := e.Plain.ExecContext(t.Context(), "DELETE FROM outbox_event")
		fixture.NoError(t, err)
		fixture.NoError(t, e.inTx(t, func(tx *entclient.Tx) error {
			if n, err := tx.Order.Delete().Where(order.Name("nobody")).Exec(t.Context()); n != 0 || err != nil {
				t.Errorf("%d, %v", n, err)
			}
			_, err := tx.Order.Delete().Where(order.QtyGT(0)).Exec(t.Context())
			return err
		}))
		e.wantRowsInAnyOrder(t, "delete.a 1", "delete.c 3")
		if got := e.qty(t); got["delete.a"] != 7 {
			t.Fatalf("the payloads say %v", got)
		}
		_, err = e.Plain.ExecContext(t.Context(), "DELETE FROM outbox_event")
		fixture.NoError(t, err)
		fixture.NoError(t, e.Order.Update().SetQty(1).Exec(t.Context()))
		e.wantRows(t, "update.b 2")
		for _, name := range []string{"d", "e", "f"} {
			e.plainOrder(t, name)
		}
		fixture.NoError(t, e.inTx(t, func(tx *entclient.Tx) error { // the entities have these values already
			n, err := tx.Order.Update().Where(order.NameIn("d", "e")).SetQty(0).Save(t.Context())
			fixture.Check(t, n == 2 || e.db.Dialect == core.MySQL, "%d were changed", n)
			return err
		}))
		fixture.Check(t, len(e.types(t)) == 3, "the events are %q", e.types(t))
	})
}

// Conditions can look at other rows: those of an edge.
func TestEntConditionOnAnEdge(t *testing.T) {
	t.Parallel()
	eachEnt(t, func(t *testing.T, e *entEnv) {
		e.Use(e.ob.Hook(onOrders()))
		e.plainOrder(t, "a")
		e.plainOrder(t, "b")
		fixture.NoError(t, e.inTx(t, func(tx *entclient.Tx) error {
			shared, err := tx.Tag.Create().SetName("x").Save(t.Context())
			fixture.NoError(t, err)
			return tx.Order.UpdateOneID(2).AddTags(shared).Exec(t.Context())
		}))
		fixture.NoError(t, e.inTx(t, func(tx *entclient.Tx) error {
			return tx.Order.Update().Where(order.HasTagsWith(tag.Name("x"))).SetQty(9).Exec(t.Context())
		}))
		fixture.NoError(t, e.Order.Update().Where(order.Not(order.HasTags())).SetQty(8).Exec(t.Context()))
		e.WantCount(t, "parents WHERE qty = 9", 1)
		e.wantRows(t, "update.b 2", "update.a 1")
	})
}
