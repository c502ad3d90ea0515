package ent_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"

	"entgo.io/ent"
	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"entgo.io/ent/dialect/sql/schema"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/entoutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/entclient"
	"github.com/ormoutbox/ormoutbox/integration/internal/entplain"
	"github.com/ormoutbox/ormoutbox/integration/internal/entplain/migrate"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/adapters"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

var errAfterCommit = errors.New("a hook failed after the COMMIT")

// A commit hook can fail after the transaction has committed. The events are published all the
// same.
func TestEntCommitHookFailsAfterwards(t *testing.T) {
	t.Parallel()
	eachEnt(t, func(t *testing.T, e *entEnv) {
		e.RunRelay(t)
		e.Use(e.ob.Hook(onAny(nil)))
		tx, err := e.Tx(t.Context())
		fixture.NoError(t, err)
		tx.OnCommit(func(next entclient.Committer) entclient.Committer {
			return entclient.CommitFunc(func(ctx context.Context, tx *entclient.Tx) error {
				if err := next.Commit(ctx, tx); err != nil {
					return err
				}
				return errAfterCommit
			})
		})
		fixture.NoError(t, tx.Order.Create().SetName("a").Exec(t.Context()))
		fixture.WantError(t, tx.Commit(), errAfterCommit)
		e.wantRows(t, "Order.create 1")
		e.WantHot(t, "Order.create")
		e.WantCount(t, "parents", 1)
	})
}

// If a commit hook does not commit, neither rows nor events are stored.
func TestEntCommitHookRefuses(t *testing.T) {
	t.Parallel()
	eachEnt(t, func(t *testing.T, e *entEnv) {
		e.RunRelay(t)
		e.Use(e.ob.Hook(onAny(nil)))
		err := entoutbox.WithTx(t.Context(), e.Tx, func(ctx context.Context, tx *entclient.Tx) error {
			tx.OnCommit(func(entclient.Committer) entclient.Committer {
				return entclient.CommitFunc(func(_ context.Context, tx *entclient.Tx) error {
					return errors.Join(fixture.ErrNoStock, tx.Rollback())
				})
			})
			return tx.Order.Create().SetName("a").Exec(ctx)
		})
		fixture.WantError(t, err, fixture.ErrNoStock)
		e.wantRows(t)
		e.WantHot(t)
		e.WantCount(t, "parents", 0)
	})
}

// Publish finds the transaction of each value that generated code binds to one, and of no other
// value.
func TestEntPublish(t *testing.T) {
	t.Parallel()
	eachEnt(t, func(t *testing.T, e *entEnv) {
		e.RunRelay(t)
		client := entclient.NewClient(entclient.Driver(e.ob.Driver()), entclient.Log(func(...any) {}))
		tx, err := client.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelSerializable})
		fixture.NoError(t, err)
		debug := tx
		if e.db.Dialect != core.SQLite { // one writer at a time: the relay's marks would wait too, and fail
			debug, err = client.Debug().Tx(t.Context())
			fixture.NoError(t, err)
		}
		for typ, conn := range map[string]entoutbox.Conn{
			"tx": tx, "client": tx.Client(), "debug client": tx.Client().Debug(),
			"mutation": tx.Order.Create().Mutation(), "debug tx": debug,
		} {
			fixture.NoError(t, e.ob.Publish(t.Context(), conn, fixture.Event(typ)))
			found, err := entoutbox.TxOf(t.Context(), conn)
			fixture.NoError(t, err)
			if !found.Tracked() || found.Dialect() != e.db.Dialect {
				t.Errorf("%s: tracked %v, dialect %s", typ, found.Tracked(), found.Dialect())
			}
		}
		fixture.NoError(t, tx.Commit())
		if debug != tx {
			fixture.NoError(t, debug.Commit())
		}
		e.WantHot(t, "tx", "client", "debug client", "mutation", "debug tx")

		var none *entclient.Tx
		for name, conn := range map[string]entoutbox.Conn{
			"client": client, "debug client": client.Debug(), "mutation": client.Order.Create().Mutation(), "nil": none,
			"ended": tx,
		} {
			if err := e.ob.Publish(t.Context(), conn, fixture.Event("x")); !errors.Is(err, core.ErrNoTransaction) {
				t.Errorf("%s: %v, want ErrNoTransaction", name, err)
			}
		}
	})
}

// Publish tells a client without the outbox's driver from a client outside of a transaction. The
// transaction of the first stays usable.
func TestEntNotWrapped(t *testing.T) {
	t.Parallel()
	eachEnt(t, func(t *testing.T, e *entEnv) {
		bare := entclient.NewClient(entclient.Driver(e.drv))
		calls := 0
		bare.Use(e.ob.Hook(onAny(&calls)))
		fixture.WantError(t, e.ob.Publish(t.Context(), bare, fixture.Event("x")), core.ErrNotInstalled)
		fixture.WantError(t, bare.Order.Create().SetName("a").Exec(t.Context()), core.ErrNotInstalled)
		tx, err := bare.Tx(t.Context())
		fixture.NoError(t, err)
		fixture.WantError(t, e.ob.Publish(t.Context(), tx, fixture.Event("x")), core.ErrNotInstalled)
		fixture.WantError(t, tx.Order.Create().SetName("a").Exec(t.Context()), core.ErrNotInstalled)
		_, err = tx.ExecContext(t.Context(), "INSERT INTO capture_items (name, note, stock) VALUES ('alive', '', 0)")
		fixture.NoError(t, err)
		fixture.NoError(t, tx.Commit())
		fixture.WantError(t, entoutbox.WithTx(t.Context(), bare.Tx,
			func(context.Context, *entclient.Tx) error { return nil }), core.ErrNotInstalled)
		fixture.Check(t, calls <= 0, "the mapper was called")
		e.WantCount(t, "parents", 0)
		e.WantCount(t, "capture_items", 1)
	})
}

// Ent has no savepoints. The outbox follows those that a program sets by hand.
func TestEntSavepointByHand(t *testing.T) {
	t.Parallel()
	eachEnt(t, func(t *testing.T, e *entEnv) {
		e.RunRelay(t)
		e.Use(e.ob.Hook(onAny(nil)))
		fixture.NoError(t, e.inTx(t, func(tx *entclient.Tx) error {
			fixture.NoError(t, tx.Order.Create().SetName("a").Exec(t.Context()))
			for _, query := range []string{"SAVEPOINT q", "", "ROLLBACK TO SAVEPOINT q"} {
				if query == "" {
					fixture.NoError(t, tx.Item.Create().SetName("ghost").Exec(t.Context()))
					continue
				}
				_, err := tx.ExecContext(t.Context(), query)
				fixture.NoError(t, err)
			}
			return e.ob.Publish(t.Context(), tx, fixture.Event("said"))
		}))
		e.wantRows(t, "Order.create 1", "said")
		e.WantHot(t, "Order.create", "said")
		e.WantCount(t, "capture_items", 0)
	})
}

// A client of another database than the outbox's is refused: its rows would be in that database,
// and the events in the outbox's.
func TestEntOutboxOfAnotherDatabase(t *testing.T) {
	t.Parallel()
	one, two := openEnt(t, testdb.SQLite(t)), openEnt(t, testdb.SQLite(t))
	one.RunRelay(t)
	two.Use(one.ob.Hook(onAny(nil)))
	fixture.WantError(t,
		two.inTx(t, func(tx *entclient.Tx) error { return tx.Order.Create().SetName("a").Exec(t.Context()) }),
		core.ErrOtherDatabase)
	fixture.WantError(t,
		two.inTx(t, func(tx *entclient.Tx) error { return one.ob.Publish(t.Context(), tx, fixture.Event("x")) }),
		core.ErrOtherDatabase)
	fixture.WantError(t, entoutbox.WithTx(t.Context(), two.Tx, func(ctx context.Context, _ *entclient.Tx) error {
		return one.ob.Publish(ctx, nil, fixture.Event("x"))
	}), core.ErrOtherDatabase)
	two.WantCount(t, "parents", 0)
	two.wantRows(t)
	one.WantHot(t)

	again, err := entoutbox.New(entsql.OpenDB(adapters.EntDialect(one.db), one.drv.(*entsql.Driver).DB()),
		entoutbox.Config{Outbox: one.ob.Outbox()})
	fixture.NoError(t, err)
	fixture.NoError(t,
		one.inTx(t,
			func(tx *entclient.Tx) error { return again.Publish(t.Context(), tx, fixture.Event("on the same pool")) }))
	one.WantHot(t, "on the same pool")
}

// Within WithTx a mutation of another transaction has its event there, and not in that of the
// context.
func TestEntMutationInAnotherTransaction(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		if db.Dialect == core.SQLite { // SQLite has one writer at a time, so the other transaction would only wait
			db.DSN = strings.Replace(db.DSN, "&_txlock=immediate", "", 1)
		}
		e := openEnt(t, db)
		client := entplain.NewClient(entplain.Driver(e.ob.Driver()))
		migrateEnt.Lock()
		fixture.NoError(t, migrate.Create(t.Context(), client.Schema, []*schema.Table{migrate.ENotesTable}))
		migrateEnt.Unlock()
		client.Use(e.ob.Hook(onAny(nil)))
		var kept *entplain.Note
		fixture.NoError(t, entoutbox.WithTx(t.Context(), client.Tx, func(ctx context.Context, tx *entplain.Tx) error {
			other, err := client.Tx(ctx)
			fixture.NoError(t, err)
			fixture.NoError(t, other.Note.Create().SetText("ghost").Exec(ctx))
			fixture.NoError(t, other.Rollback())
			kept, err = tx.Client().Note.Create().SetText("kept").Save(ctx)
			return err
		}))
		e.wantRows(t, "Note.create "+kept.ID.String())
		e.WantCount(t, "e_notes WHERE text = 'kept'", 1)
		e.WantCount(t, "e_notes", 1)
	})
}

// A program sends COMMIT as a statement, in a transaction whose events could not be written. Commit
// then does not report a rollback.
func TestEntCommitByHandOfWhatFailed(t *testing.T) {
	t.Parallel()
	eachEnt(t, func(t *testing.T, e *entEnv) {
		e.Use(e.ob.Hook(entoutbox.OnMutation(func(
			context.Context, *entclient.OrderMutation, ent.Value,
		) ([]core.Event, error) {
			return nil, fixture.ErrNoStock
		})))
		tx, err := e.Tx(t.Context())
		fixture.NoError(t, err)
		fixture.WantError(t, tx.Order.Create().SetName("a").Exec(t.Context()), fixture.ErrNoStock)
		_, err = tx.ExecContext(t.Context(), "COMMIT")
		fixture.NoError(t, err)
		err = tx.Commit()
		fixture.WantError(t, err, fixture.ErrNoStock)
		fixture.WantError(t, err, core.ErrCommitUnknown)
	})
}

// Clients generated without the feature sql/execquery cause events as others do. Publish finds the
// transaction in the context of WithTx.
func TestEntWithoutExecQuery(t *testing.T) {
	t.Parallel()
	eachEnt(t, func(t *testing.T, e *entEnv) {
		e.RunRelay(t)
		client := entplain.NewClient(entplain.Driver(e.ob.Driver()))
		migrateEnt.Lock()
		fixture.NoError(t, migrate.Create(t.Context(), client.Schema, []*schema.Table{migrate.ENotesTable}))
		migrateEnt.Unlock()
		client.Use(e.ob.Hook(entoutbox.OnMutation(func(
			ctx context.Context, m *entplain.NoteMutation, _ ent.Value,
		) ([]core.Event, error) {
			text, _ := m.Text()
			return []core.Event{{Type: text + "." + entoutbox.OpOf(ctx).String()}}, nil
		})))
		fixture.NoError(t, client.Note.Create().SetText("autocommit").Exec(t.Context()))
		tx, err := client.Tx(t.Context())
		fixture.NoError(t, err)
		fixture.NoError(t, tx.Note.Create().SetText("seen").Exec(t.Context()))
		fixture.NoError(t, tx.Rollback())
		fixture.NoError(t, entoutbox.WithTx(t.Context(), client.Tx, func(ctx context.Context, tx *entplain.Tx) error {
			if e.db.Dialect != core.SQLite { // which has one writer
				fixture.NoError(t, client.Note.Create().SetText("aside").Exec(ctx))
			}
			n, err := tx.Note.Create().SetText("a").Save(ctx)
			fixture.NoError(t, err)
			fixture.NoError(t, n.Update().SetText("b").Exec(ctx))
			fixture.NoError(t, tx.Note.CreateBulk(tx.Note.Create().SetText("c"),
				tx.Note.Create().SetText("d")).Exec(ctx))
			return e.ob.Publish(ctx, nil, fixture.Event("said"))
		}))
		want := []string{"autocommit.create", "a.create", "b.update", "c.create", "d.create", "said"}
		if e.db.Dialect != core.SQLite {
			want = append(want, "aside.create")
		}
		e.WantHot(t, want...)
		e.WantCount(t, "e_notes", int64(len(want))-2)
	})
}

// After an error while rows are read, the outbox asks the database whether it still has the
// transaction.
func TestEntErrorsWhileReading(t *testing.T) {
	t.Parallel()
	e := openEnt(t, testdb.SQLite(t))
	e.RunRelay(t)
	tx, err := e.Tx(t.Context())
	fixture.NoError(t, err)
	fixture.NoError(t, e.ob.Publish(t.Context(), tx, fixture.Event("doubtful")))
	// abs overflows at the second row
	rows, err := tx.QueryContext(t.Context(),
		"SELECT abs(n) FROM (SELECT 1 AS n UNION ALL SELECT -9223372036854775808)")
	if err == nil {
		defer rows.Close()
		for rows.Next() {
		}
		err = rows.Err()
	}
	fixture.Must(t, err != nil, "no error")
	fixture.NoError(t, e.ob.Publish(t.Context(), tx, fixture.Event("late"))) // the error has rolled nothing back
	fixture.NoError(t, tx.Rollback())
	e.wantRows(t)
	e.WantHot(t)
}

// Two outboxes share one driver, whichever of their drivers the client was made with.
func TestEntTwoOutboxes(t *testing.T) {
	t.Parallel()
	eachEnt(t, func(t *testing.T, e *entEnv) {
		audit, err := entoutbox.New(e.ob.Driver(), entoutbox.Config{AutoCreate: true, Prefix: "audit_"})
		fixture.NoError(t, err)
		fixture.Check(t, audit.Driver() == e.ob.Driver(), "a driver around the driver")
		e.Use(e.ob.Hook(onAny(nil)), audit.Hook(onAny(nil)))
		fixture.NoError(t, e.inTx(t, func(tx *entclient.Tx) error {
			fixture.NoError(t, tx.Order.Create().SetName("a").Exec(t.Context()))
			return e.ob.Publish(t.Context(), tx, fixture.Event("said"))
		}))
		e.wantRows(t, "Order.create 1", "said")
		e.WantCount(t, "audit_event", 1)
		backlog, err := audit.Backlog(t.Context())
		fixture.NoError(t, err)
		fixture.Check(t, backlog.Pending == 1, "%d pending", backlog.Pending)
	})
}

// foreignDriver is a driver of an application. Its transactions have a type of their own, as with
// tracing libraries.
type foreignDriver struct {
	dialect.Driver
	statements *int
}

type foreignTx struct {
	dialect.Tx
	statements *int
}

func (d foreignDriver) Tx(ctx context.Context) (dialect.Tx, error) {
	tx, err := d.Driver.Tx(ctx)
	return foreignTx{tx, d.statements}, err
}

func (t foreignTx) Exec(ctx context.Context, query string, args, v any) error {
	*t.statements++
	return t.Tx.Exec(ctx, query, args, v)
}

func (t foreignTx) Query(ctx context.Context, query string, args, v any) error {
	*t.statements++
	return t.Tx.Query(ctx, query, args, v)
}

// A driver with only the methods that Ent requires is enough for clients without sql/execquery.
func TestEntForeignDriver(t *testing.T) {
	t.Parallel()
	eachEnt(t, func(t *testing.T, e *entEnv) {
		e.RunRelay(t)
		statements := 0
		foreign := foreignDriver{e.drv, &statements}
		if _, err := entoutbox.New(foreign, entoutbox.Config{}); err == nil ||
			!strings.Contains(err.Error(), "set Config.Outbox") {
			t.Fatalf("New: %v", err)
		}
		ob, err := entoutbox.New(foreign, entoutbox.Config{Outbox: e.ob.Outbox()})
		fixture.NoError(t, err)
		client := entplain.NewClient(entplain.Driver(ob.Driver()))
		fixture.NoError(t, entoutbox.WithTx(t.Context(), client.Tx, func(ctx context.Context, _ *entplain.Tx) error {
			return ob.Publish(ctx, nil, core.Event{Type: "said", AggregateID: "1"})
		}))
		e.WantHot(t, "said")
		fixture.Check(t, statements != 0, "the driver did not see the INSERT")
		if _, err := client.BeginTx(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "BeginTx") {
			t.Errorf("BeginTx: %v", err)
		}
	})
}

// Other features of a client still work with the outbox: reads, SQL of the application, a Debug
// driver below.
func TestEntClientStaysUsable(t *testing.T) {
	t.Parallel()
	eachEnt(t, func(t *testing.T, e *entEnv) {
		e.plainOrder(t, "a")
		if n := e.Order.Query().CountX(t.Context()); n != 1 {
			t.Errorf("%d orders", n)
		}
		_, err := e.ExecContext(t.Context(), "UPDATE parents SET qty = 5")
		fixture.NoError(t, err)
		e.WantCount(t, "parents WHERE qty = 5", 1)
		rows, err := e.QueryContext(t.Context(), "SELECT qty FROM parents")
		fixture.NoError(t, err)
		defer rows.Close()
		if !rows.Next() {
			t.Errorf("no row: %v", rows.Err())
		}
		fixture.NoError(t, rows.Close()) // SQLite has one writer
		var said []string
		ob, err := entoutbox.New(dialect.Debug(e.drv, func(v ...any) { said = append(said, v[0].(string)) }),
			entoutbox.Config{})
		fixture.NoError(t, err)
		debug := entclient.NewClient(entclient.Driver(ob.Driver()))
		fixture.NoError(t, entoutbox.WithTx(t.Context(), debug.Tx, func(ctx context.Context, tx *entclient.Tx) error {
			fixture.NoError(t, tx.Item.Create().SetName("x").Exec(ctx))
			return ob.Publish(ctx, tx, fixture.Event("said"))
		}))
		if log := strings.Join(said, "\n"); !strings.Contains(log, "INSERT INTO") ||
			!strings.Contains(log, "committed") || strings.Contains(log, "outbox_event") {
			t.Errorf("the driver logged:\n%s", log)
		}
		e.wantRows(t, "said")
	})
}
