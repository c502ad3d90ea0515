package ent_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"testing"

	"entgo.io/ent"
	entsql "entgo.io/ent/dialect/sql"
	"github.com/google/uuid"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/integration/internal/entclient"
	"github.com/ormoutbox/ormoutbox/integration/internal/entclient/document"
	"github.com/ormoutbox/ormoutbox/integration/internal/entclient/order"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
)

// The outbox's hook is installed for one type. Hooks within it change other types, in the context
// of the mutation and before it is executed. These changes are not taken for those of the mutation.
func TestEntHookOfATypeAndOtherTypesInItsContext(t *testing.T) {
	t.Parallel()
	for name, aside := range map[string]func(ctx context.Context, e *entEnv, m *entclient.OrderMutation) error{
		"a create": func(ctx context.Context, _ *entEnv, m *entclient.OrderMutation) error {
			name, _ := m.Name()
			return m.Client().Document.Create().SetID(name).Exec(ctx)
		},
		"a create with a generated id": func(ctx context.Context, _ *entEnv, m *entclient.OrderMutation) error {
			return m.Client().Item.Create().SetNote("x").Exec(ctx)
		},
		"two at once": func(ctx context.Context, _ *entEnv, m *entclient.OrderMutation) error {
			c := m.Client()
			return c.Item.CreateBulk(c.Item.Create().SetNote("x"), c.Item.Create().SetNote("y")).Exec(ctx)
		},
		"an upsert that changes nothing": func(ctx context.Context, e *entEnv, m *entclient.OrderMutation) error {
			create := m.Client().Document.Create().SetID("there")
			if e.db.Dialect == core.MySQL {
				return create.OnConflict(entsql.ConflictColumns(document.FieldID), entsql.ResolveWithIgnore()).Exec(ctx)
			}
			err := create.OnConflict(entsql.ConflictColumns(document.FieldID)).DoNothing().Exec(ctx)
			if errors.Is(err, sql.ErrNoRows) {
				return nil
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachEnt(t, func(t *testing.T, e *entEnv) {
				fixture.NoError(t, e.Document.Create().SetID("there").Exec(t.Context()))
				e.Order.Use(e.ob.Hook(onOrders()),
					orderHook(func(
						ctx context.Context, m *entclient.OrderMutation, next func() (ent.Value, error),
					) (ent.Value, error) {
						if err := aside(ctx, e, m); err != nil {
							return nil, err
						}
						return next()
					}))
				fixture.NoError(t, e.inTx(t, func(tx *entclient.Tx) error {
					fixture.NoError(t, tx.Order.Create().SetName("a").Exec(t.Context()))
					return tx.Order.CreateBulk(tx.Order.Create().SetName("b"), tx.Order.Create().SetName("c"),
						tx.Order.Create().SetName("d")).Exec(t.Context())
				}))
				e.wantRowsInAnyOrder(t, "create.a 1", "create.b 2", "create.c 3", "create.d 4")
			})
		})
	}
}

// The same holds for tags of the order, whose rows are in a table of their own, and for changes
// after the mutation.
func TestEntHookOfATypeAndEdges(t *testing.T) {
	t.Parallel()
	eachEnt(t, func(t *testing.T, e *entEnv) {
		tag := e.Tag.Create().SetName("x").SaveX(t.Context())
		aside := func(ctx context.Context, m *entclient.OrderMutation, name string) error {
			return m.Client().Child.Create().SetID(uuid.NewString()).SetName(name).Exec(ctx)
		}
		e.Order.Use(e.ob.Hook(onOrders()),
			orderHook(func(
				ctx context.Context, m *entclient.OrderMutation, next func() (ent.Value, error),
			) (ent.Value, error) {
				if err := aside(ctx, m, "before"); err != nil {
					return nil, err
				}
				v, err := next()
				if err != nil {
					return nil, err
				}
				return v, aside(ctx, m, "after")
			}))
		fixture.NoError(t, e.inTx(t, func(tx *entclient.Tx) error {
			fixture.NoError(t, tx.Order.Create().SetName("a").AddTags(tag).Exec(t.Context()))
			return tx.Order.CreateBulk(tx.Order.Create().SetName("b").AddTags(tag),
				tx.Order.Create().SetName("c").AddTags(tag)).Exec(t.Context())
		}))
		e.wantRowsInAnyOrder(t, "create.a 1", "create.b 2", "create.c 3")
	})
}

// An update or a delete that a hook rolls back to a savepoint leaves no event.
func TestEntChangeThatAHookUndoes(t *testing.T) {
	t.Parallel()
	eachEnt(t, func(t *testing.T, e *entEnv) {
		e.plainOrder(t, "a")
		e.Use(e.ob.Hook(onOrders()),
			orderHook(func(
				ctx context.Context, m *entclient.OrderMutation, next func() (ent.Value, error),
			) (ent.Value, error) {
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
			fixture.NoError(t, tx.Order.UpdateOneID(1).SetQty(7).Exec(t.Context()))
			return tx.Order.DeleteOneID(1).Exec(t.Context())
		}))
		e.WantCount(t, "parents WHERE qty = 0", 1)
		e.wantRows(t)
	})
}

// The same holds for updates and deletes of many entities.
func TestEntChangesThatAHookUndoes(t *testing.T) {
	t.Parallel()
	eachEnt(t, func(t *testing.T, e *entEnv) {
		e.plainOrder(t, "a")
		e.plainOrder(t, "b")
		e.Use(e.ob.Hook(onOrders()),
			orderHook(func(
				ctx context.Context, m *entclient.OrderMutation, next func() (ent.Value, error),
			) (ent.Value, error) {
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
			fixture.NoError(t, tx.Order.Update().SetQty(7).Exec(t.Context()))
			_, err := tx.Order.Delete().Exec(t.Context())
			return err
		}))
		e.WantCount(t, "parents WHERE qty = 0", 2)
		e.wantRows(t)
	})
}

// A hook undoes its changes and returns an error: the transaction can go on without them.
func TestEntHookThatUndoesAndFails(t *testing.T) {
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
				_, err := next()
				_, undo := m.ExecContext(ctx, "ROLLBACK TO SAVEPOINT s")
				return nil, errors.Join(fixture.ErrNoStock, err, undo)
			}))
		fixture.NoError(t, e.inTx(t, func(tx *entclient.Tx) error {
			fixture.WantError(t, tx.Order.Create().SetName("undone").Exec(t.Context()), fixture.ErrNoStock)
			return tx.Order.Create().SetName("kept").Exec(t.Context())
		}))
		e.WantCount(t, "parents", 1)
		if got := e.types(t); len(got) != 1 || got[0][:11] != "create.kept" {
			t.Fatalf("the events are %q, want that of kept", got)
		}
	})
}

// An inner hook or policy adds a condition, as privacy filters do. Rows that the condition leaves
// out cause no event.
func TestEntConditionOfAHook(t *testing.T) {
	t.Parallel()
	eachEnt(t, func(t *testing.T, e *entEnv) {
		e.Use(e.ob.Hook(onOrders()),
			orderHook(func(
				_ context.Context, m *entclient.OrderMutation, next func() (ent.Value, error),
			) (ent.Value, error) {
				m.Where(order.NameNEQ("b"))
				return next()
			}))
		for _, name := range []string{"a", "b", "c"} {
			e.plainOrder(t, name)
		}
		update := func(names ...string) error {
			return e.inTx(t, func(tx *entclient.Tx) error {
				return tx.Order.Update().Where(order.NameIn(names...)).AddQty(7).Exec(t.Context())
			})
		}
		fixture.NoError(t, update("a", "c"))
		fixture.NoError(t, update("a", "b"))
		e.wantRowsInAnyOrder(t, "update.a 1", "update.c 3", "update.a 1")
		e.WantCount(t, "parents WHERE name = 'a' AND qty = 14", 1)
		e.WantCount(t, "parents WHERE name = 'b' AND qty = 0", 1)
	})
}

// wantRowsInAnyOrder is wantRows for events of one statement, which may have been made at the same
// moment.
func (e *entEnv) wantRowsInAnyOrder(t *testing.T, want ...string) {
	t.Helper()
	got := e.types(t)
	slices.Sort(got)
	slices.Sort(want)
	fixture.Must(t, slices.Equal(got, want), "events in the table are %q, want %q", got, want)
}
