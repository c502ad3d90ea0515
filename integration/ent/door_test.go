package ent_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"entgo.io/ent"
	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/entoutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/entclient"
	"github.com/ormoutbox/ormoutbox/integration/internal/entclient/order"
	"github.com/ormoutbox/ormoutbox/integration/internal/entplain"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
)

// pool returns the pool of the client.
func (e *entEnv) pool() *sql.DB { return e.drv.(*entsql.Driver).DB() }

// tellOrders registers a function that tells orders by name.
func tellOrders(e *entEnv) {
	entoutbox.On(e.ob, func(op core.Op, o *entclient.Order) []core.Event {
		return []core.Event{{Type: op.String() + "." + o.Name}}
	})
	e.Use(e.ob.Hook())
}

// In the context of an On function every client of the driver works in the transaction of the
// statement. After its end the context has none.
func TestEntContextOfOn(t *testing.T) {
	t.Parallel()
	eachEnt(t, func(t *testing.T, e *entEnv) {
		e.pool().SetMaxOpenConns(1)
		var kept context.Context
		entoutbox.OnContext(e.ob, func(ctx context.Context, op core.Op, o *entclient.Order) ([]core.Event, error) {
			if op != core.OpCreate || o.Name != "a" {
				return []core.Event{{Type: op.String() + " " + o.Name}}, nil
			}
			kept = ctx //nolint:fatcontext // the test uses it later
			if n, err := e.Order.Query().Where(order.Name(o.Name)).Count(ctx); n != 1 || err != nil {
				return nil, fmt.Errorf("%d orders, %w", n, err)
			}
			if n, err := o.QueryChildren().Count(ctx); n != 0 || err != nil {
				return nil, fmt.Errorf("%d lines, %w", n, err)
			}
			if err := e.Item.Create().SetName("of " + o.Name).Exec(ctx); err != nil {
				return nil, err
			}
			undone, err := e.Tx(ctx) // a savepoint
			if err != nil {
				return nil, err
			}
			if err := errors.Join(undone.Item.Create().SetName("undone").Exec(ctx), undone.Rollback()); err != nil {
				return nil, err
			}
			if err := e.Item.Update().SetStock(5).Exec(ctx); err != nil {
				return nil, err
			}
			if _, err := entoutbox.FromContext[*entclient.Tx](ctx); !errors.Is(err, core.ErrNoTransaction) {
				return nil, fmt.Errorf("another transaction in the context: %w", err)
			}
			return []core.Event{{Type: op.String()}}, e.ob.Publish(ctx, nil, core.Event{Type: "said"})
		})
		entoutbox.On(e.ob, func(op core.Op, i *entclient.Item) []core.Event {
			return []core.Event{{Type: fmt.Sprintf("%s item %s", op, i.Name)}}
		})
		e.Use(e.ob.Hook())
		o := e.Order.Create().SetName("a").SaveX(t.Context())
		want := []string{"create 1", "said -", "create item of a 1", "update item of a 1"}
		e.wantRowsInAnyOrder(t, slices.Clone(want)...)
		fixture.NoError(t, e.Order.Create().SetName("after the end").Exec(kept)) // autocommit again
		e.WantCount(t, "parents", 2)
		fixture.NoError(t, o.Update().SetQty(1).Exec(t.Context()))
		e.WantCount(t, "capture_items", 1)
		e.wantRowsInAnyOrder(t, append(want, "create after the end 2", "update a 1")...)
	})
}

// The statement fails if its COMMIT fails, and then there is no event.
func TestEntCommitOfAStatementFails(t *testing.T) {
	t.Parallel()
	eachEnt(t, func(t *testing.T, e *entEnv) {
		if e.db.Dialect != core.Postgres {
			t.Log("this database has no deferred triggers")
			return
		}
		tellOrders(e)
		for _, query := range []string{
			`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not today'; END $$`,
			`CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON parents DEFERRABLE INITIALLY DEFERRED
				FOR EACH ROW EXECUTE FUNCTION refuse()`,
		} {
			_, err := e.Plain.ExecContext(t.Context(), query)
			fixture.NoError(t, err)
		}
		err := e.Order.Create().SetName("a").Exec(t.Context())
		fixture.Check(t, err != nil && strings.Contains(err.Error(), "not today"), "%v", err)
		e.wantRows(t)
		e.WantCount(t, "parents", 0)
	})
}

// The variables of a context do not stay with the connection.
func TestEntVariables(t *testing.T) {
	t.Parallel()
	eachEnt(t, func(t *testing.T, e *entEnv) {
		name, read := "app.tenant", "SELECT coalesce(current_setting('app.tenant', true), '')"
		switch e.db.Dialect {
		case core.SQLite:
			t.Log("this database has no variables")
			return
		case core.MySQL:
			name, read = "@tenant", "SELECT coalesce(@tenant, '')"
		}
		e.pool().SetMaxOpenConns(1)
		inside := ""
		entoutbox.OnContext(e.ob, func(ctx context.Context, _ core.Op, o *entclient.Order) ([]core.Event, error) {
			rows, err := e.QueryContext(ctx, read)
			if err != nil {
				return nil, err
			}
			defer rows.Close()
			for rows.Next() {
				err = rows.Scan(&inside)
			}
			if o.Name == "fails" {
				err = fixture.ErrNoStock
			}
			return []core.Event{{Type: "x"}}, errors.Join(err, rows.Err())
		})
		e.Use(e.ob.Hook())
		ctx := entsql.WithVar(t.Context(), name, "7")
		for _, order := range []string{"fails", "a"} {
			err := e.Order.Create().SetName(order).Exec(ctx)
			fixture.Check(t, (order == "a") == (err == nil), "%s: %v", order, err)
			var after string
			fixture.NoError(t, e.pool().QueryRowContext(t.Context(), read).Scan(&after))
			fixture.Check(t, inside == "7" && after == "", "%s: %q in the transaction, %q after it", order, inside,
				after)
		}
		e.WantCount(t, "parents", 1)
	})
}

// OnAll sees every type, but those that it passes over and the tables of the outbox.
func TestEntOnAll(t *testing.T) {
	t.Parallel()
	eachEnt(t, func(t *testing.T, e *entEnv) {
		entoutbox.OnAll(e.ob, func(ctx context.Context, op core.Op, entity any) ([]core.Event, error) {
			if _, ok := core.TxFromContext(ctx); !ok {
				return nil, errors.New("no transaction")
			}
			return []core.Event{{Type: fmt.Sprintf("%s %T", op, entity)}}, nil
		}, &entclient.Document{})
		e.Use(e.ob.Hook())
		plain := entplain.NewClient(entplain.Driver(e.ob.Driver()))
		plain.Use(e.ob.Hook())
		e.Order.Create().SetName("a").AddTags(e.Tag.Create().SetName("x").SaveX(t.Context())).ExecX(t.Context())
		e.Document.Create().SetID("X").ExecX(t.Context())
		e.Order.Update().SetQty(1).ExecX(t.Context())
		want := []string{"create *entclient.Tag 1", "create *entclient.Order 1", "update *entclient.Order 1"}
		e.wantRowsInAnyOrder(t, want...)
		n, err := plain.OutboxEvent.Delete().Exec(t.Context())
		fixture.Check(t, n == 3 && err == nil, "%d events were deleted: %v", n, err)
		e.wantRows(t)
	})
}

// If a hook loses the context of a mutation, On still sees its rows. For OnMutation nobody can tell
// whose they are: the mutation fails, and its transaction does not commit.
func TestEntHookThatLosesTheContext(t *testing.T) {
	t.Parallel()
	eachEnt(t, func(t *testing.T, e *entEnv) {
		loses := func(next ent.Mutator) ent.Mutator {
			return ent.MutateFunc(func(_ context.Context, m ent.Mutation) (ent.Value, error) {
				return next.Mutate(context.Background(), m)
			})
		}
		on := entclient.NewClient(entclient.Driver(e.ob.Driver()))
		entoutbox.On(e.ob, func(op core.Op, o *entclient.Order) []core.Event {
			return []core.Event{{Type: op.String() + "." + o.Name}}
		})
		on.Use(e.ob.Hook(), loses)
		on.Order.Create().SetName("a").ExecX(t.Context())
		e.wantRows(t, "create.a 1")

		e.Use(e.ob.Hook(onOrders()), loses)
		for name, mutate := range map[string]func(tx *entclient.Tx) error{
			"create": func(tx *entclient.Tx) error { return tx.Order.Create().SetName("b").Exec(t.Context()) },
			"bulk": func(tx *entclient.Tx) error {
				b, c := tx.Order.Create().SetName("b"), tx.Order.Create().SetName("c")
				return tx.Order.CreateBulk(b, c).Exec(t.Context())
			},
			"update": func(tx *entclient.Tx) error { return tx.Order.UpdateOneID(1).SetQty(1).Exec(t.Context()) },
			"delete": func(tx *entclient.Tx) error { return tx.Order.DeleteOneID(1).Exec(t.Context()) },
		} {
			fixture.WantError(t, e.inTx(t, func(tx *entclient.Tx) error {
				if err := mutate(tx); !errors.Is(err, core.ErrNoAggregateID) {
					t.Errorf("%s: %v", name, err)
				}
				return nil
			}), core.ErrNoAggregateID)
		}
		fixture.NoError(t, e.inTx(t, func(tx *entclient.Tx) error { // changes nothing, so nothing is lost
			return tx.Order.UpdateOneID(1).Exec(t.Context())
		}))
		e.wantRows(t, "create.a 1")
		e.WantCount(t, "parents WHERE qty = 0", 1)
	})
}

// A write is found behind comments.
func TestEntTexts(t *testing.T) {
	t.Parallel()
	eachEnt(t, func(t *testing.T, e *entEnv) {
		tellOrders(e)
		e.Order.Create().SetName("a").ExecX(t.Context())
		drv := e.ob.Driver()
		fixture.NoError(t, drv.Exec(t.Context(), "/* app=shop */ UPDATE parents SET qty = 1 -- comment", []any{},
			nil))
		e.wantRows(t, "create.a 1", "update.a 1")
		e.WantCount(t, "parents WHERE qty = 1", 1)
	})
}

// commentingDriver is a driver around the outbox's that adds comments.
type commentingDriver struct{ dialect.Driver }

func (d commentingDriver) Exec(ctx context.Context, query string, args, v any) error {
	return d.Driver.Exec(ctx, "/* app=shop */ "+query+" /* trace=1 */", args, v)
}

func (d commentingDriver) Query(ctx context.Context, query string, args, v any) error {
	return d.Driver.Query(ctx, "/* app=shop */ "+query+" -- trace", args, v)
}

func TestEntThroughCommentingDriver(t *testing.T) {
	t.Parallel()
	eachEnt(t, func(t *testing.T, e *entEnv) {
		e.Client = entclient.NewClient(entclient.Driver(commentingDriver{e.ob.Driver()}))
		tellOrders(e)
		o := e.Order.Create().SetName("a").SaveX(t.Context())
		e.Order.Update().SetQty(1).ExecX(t.Context())
		e.Order.DeleteOne(o).ExecX(t.Context())
		e.wantRows(t, "create.a 1", "update.a 1", "delete.a 1")
	})
}

// A driver below that is not part of Ent is captured too.
func TestEntForeignDriverIsCaptured(t *testing.T) {
	t.Parallel()
	eachEnt(t, func(t *testing.T, e *entEnv) {
		statements := 0
		ob, err := entoutbox.New(foreignDriver{e.drv, &statements}, entoutbox.Config{Outbox: e.ob.Outbox()})
		fixture.NoError(t, err)
		client := entclient.NewClient(entclient.Driver(ob.Driver()))
		entoutbox.On(ob, func(op core.Op, o *entclient.Order) []core.Event {
			return []core.Event{{Type: op.String() + "." + o.Name}}
		})
		client.Use(ob.Hook())
		o := client.Order.Create().SetName("a").SaveX(t.Context())
		client.Order.Update().SetQty(1).ExecX(t.Context())
		client.Order.DeleteOne(o).ExecX(t.Context())
		e.wantRows(t, "create.a 1", "update.a 1", "delete.a 1")
		fixture.Check(t, statements > 3, "the driver saw %d statements", statements)
	})
}

// Interceptors do not see the rows that are told, which are read past them and past policies.
func TestEntInterceptors(t *testing.T) {
	t.Parallel()
	eachEnt(t, func(t *testing.T, e *entEnv) {
		tellOrders(e)
		e.Intercept(ent.InterceptFunc(func(ent.Querier) ent.Querier {
			return ent.QuerierFunc(func(context.Context, ent.Query) (ent.Value, error) {
				return nil, fixture.ErrNoStock
			})
		}))
		e.Order.Create().SetName("a").ExecX(t.Context())
		_, err := e.Order.Query().All(t.Context())
		fixture.WantError(t, err, fixture.ErrNoStock)
		e.wantRows(t, "create.a 1")
	})
}

// An entity that On gets is bound to the client, as one that Ent returns.
func TestEntEntityOfOn(t *testing.T) {
	t.Parallel()
	eachEnt(t, func(t *testing.T, e *entEnv) {
		var told *entclient.Order
		entoutbox.On(e.ob, func(_ core.Op, o *entclient.Order) []core.Event {
			told = o
			return nil
		})
		e.Use(e.ob.Hook())
		e.Order.Create().SetName("a").ExecX(t.Context())
		fixture.NoError(t, told.Update().SetQty(5).Exec(t.Context()))
		tx, err := e.Tx(t.Context())
		fixture.NoError(t, err)
		fixture.NoError(t, tx.Order.Update().SetQty(6).Exec(t.Context()))
		of := told.Unwrap() // it panics for an entity that is not in a transaction
		fixture.NoError(t, tx.Commit())
		fixture.NoError(t, of.Update().SetTenant(2).Exec(t.Context()))
		e.WantCount(t, "parents WHERE tenant = 2 AND qty = 6", 1)
	})
}

// Several goroutines create in bulk, with equal contexts and outside of transactions. Each mutation
// comes with its own entity.
func TestEntConcurrentBulks(t *testing.T) {
	t.Parallel()
	eachEnt(t, func(t *testing.T, e *entEnv) {
		e.Use(e.ob.Hook(entoutbox.OnMutation(func(
			_ context.Context, m *entclient.OrderMutation, v ent.Value,
		) ([]core.Event, error) {
			name, _ := m.Name()
			if stored := v.(*entclient.Order).Name; stored != name {
				return nil, fmt.Errorf("%s was stored for %s", stored, name)
			}
			return []core.Event{{Type: name}}, nil
		})), orderHook(func(
			_ context.Context, _ *entclient.OrderMutation, next func() (ent.Value, error),
		) (ent.Value, error) {
			runtime.Gosched()
			return next()
		}))
		e.pool().SetMaxOpenConns(3)
		var all sync.WaitGroup
		var want []string
		for i := range 6 {
			names := []string{fmt.Sprint("a", i), fmt.Sprint("b", i), fmt.Sprint("c", i)}
			want = append(want, names...)
			all.Go(func() {
				err := e.Order.MapCreateBulk(names, func(c *entclient.OrderCreate, i int) { c.SetName(names[i]) }).
					Exec(context.Background())
				if err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		var got []string
		for _, event := range e.types(t) {
			name, _, _ := strings.Cut(event, " ")
			got = append(got, name)
		}
		slices.Sort(got)
		slices.Sort(want)
		fixture.Check(t, slices.Equal(got, want), "the events are %q, want %q", got, want)
	})
}

// A bulk fails in one of its functions. The next one is not taken for a part of it.
func TestEntBulkThatFails(t *testing.T) {
	t.Parallel()
	eachEnt(t, func(t *testing.T, e *entEnv) {
		e.Use(e.ob.Hook(entoutbox.OnMutation(func(
			_ context.Context, m *entclient.OrderMutation, _ ent.Value,
		) ([]core.Event, error) {
			switch name, _ := m.Name(); name {
			case "broken":
				return nil, fixture.ErrNoStock
			case "panics":
				panic("stop")
			default:
				return []core.Event{{Type: name}}, nil
			}
		})))
		bulk := func(client *entclient.OrderClient, names ...string) error {
			return client.MapCreateBulk(names, func(c *entclient.OrderCreate, i int) { c.SetName(names[i]) }).
				Exec(t.Context())
		}
		fixture.WantError(t, bulk(e.Order, "a", "broken", "c"), fixture.ErrNoStock)
		panics := func(client *entclient.OrderClient) {
			defer func() { fixture.Check(t, recover() == "stop", "the panic did not reach the program") }()
			_ = bulk(client, "b", "panics")
		}
		panics(e.Order)
		fixture.Check(t, e.pool().Stats().InUse == 0, "a connection is in use")
		err := e.inTx(t, func(tx *entclient.Tx) error {
			panics(tx.Order)
			return nil
		})
		fixture.Check(t, err != nil, "the transaction has committed")
		e.WantCount(t, "parents", 0)
		fixture.NoError(t, bulk(e.Order, "d", "e"))
		got := e.types(t)
		fixture.Check(t, len(got) == 2 && strings.HasPrefix(got[0], "d ") && strings.HasPrefix(got[1], "e "),
			"the events are %q", got)
	})
}

// A create that a hook causes within a bulk is not part of it, with its context or another one.
func TestEntCreateWithinABulk(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]func(context.Context) context.Context{
		"its context":     func(ctx context.Context) context.Context { return ctx },
		"another context": func(context.Context) context.Context { return context.Background() },
	} {
		t.Run(name, func(t *testing.T) {
			eachEnt(t, func(t *testing.T, e *entEnv) {
				e.Use(e.ob.Hook(onOrders()), orderHook(func(
					ctx context.Context, m *entclient.OrderMutation, next func() (ent.Value, error),
				) (ent.Value, error) {
					name, _ := m.Name()
					v, err := next()
					if err != nil || strings.HasPrefix(name, "of ") {
						return v, err
					}
					return v, m.Client().Order.CreateBulk(m.Client().Order.Create().SetName("of "+name),
						m.Client().Order.Create().SetName("of "+name+" too")).Exec(of(ctx))
				}))
				fixture.NoError(t, e.inTx(t, func(tx *entclient.Tx) error {
					return tx.Order.CreateBulk(tx.Order.Create().SetName("a"), tx.Order.Create().SetName("b")).
						Exec(t.Context())
				}))
				e.wantRowsInAnyOrder(t, "create.a 1", "create.b 2", "create.of b 3", "create.of b too 4",
					"create.of a 5",
					"create.of a too 6")
			})
		})
	}
}

// A context that ends in an On function ends the statement without its row.
func TestEntContextThatEnds(t *testing.T) {
	t.Parallel()
	eachEnt(t, func(t *testing.T, e *entEnv) {
		ctx, cancel := context.WithCancel(t.Context())
		entoutbox.On(e.ob, func(op core.Op, _ *entclient.Order) []core.Event {
			cancel()
			return []core.Event{{Type: op.String()}}
		})
		e.Use(e.ob.Hook())
		err := e.Order.Create().SetName("a").Exec(ctx)
		fixture.Check(t, err != nil, "the statement has succeeded")
		deadline := time.Now().Add(10 * time.Second)
		for e.pool().Stats().InUse > 0 && time.Now().Before(deadline) {
			time.Sleep(time.Millisecond)
		}
		e.WantCount(t, "parents", 0)
		e.wantRows(t)
		fixture.WantError(t, e.Order.Create().SetName("b").Exec(ctx), context.Canceled)
	})
}

// The error of an aborted transaction is the database's own.
func TestEntAbortedTransaction(t *testing.T) {
	t.Parallel()
	eachEnt(t, func(t *testing.T, e *entEnv) {
		if e.db.Dialect != core.Postgres {
			t.Log("errors do not abort transactions of this database")
			return
		}
		tellOrders(e)
		tx, err := e.Tx(t.Context())
		fixture.NoError(t, err)
		defer tx.Rollback()
		_, err = tx.ExecContext(t.Context(), "SELECT * FROM there_is_no_such_table")
		fixture.Check(t, err != nil, "no error")
		err = tx.Order.Create().SetName("a").Exec(t.Context())
		fixture.Check(t, err != nil && strings.Contains(err.Error(), "25P02"), "%v", err)
	})
}

// Replayed rows leave nothing running.
func TestEntLeavesNoGoroutines(t *testing.T) { //nolint:paralleltest // it counts goroutines
	eachEnt(t, func(t *testing.T, e *entEnv) {
		tellOrders(e)
		e.Order.Create().SetName("first").ExecX(t.Context())
		before := runtime.NumGoroutine()
		for i := range 50 {
			e.Order.Create().SetName(fmt.Sprint(i)).ExecX(t.Context())
			e.Order.Update().Where(order.Name(fmt.Sprint(i))).SetQty(1).ExecX(t.Context())
		}
		deadline := time.Now().Add(10 * time.Second)
		for runtime.NumGoroutine() > before+5 && time.Now().Before(deadline) {
			time.Sleep(time.Millisecond)
		}
		fixture.Check(t, runtime.NumGoroutine() <= before+5, "%d goroutines, %d before", runtime.NumGoroutine(), before)
	})
}
