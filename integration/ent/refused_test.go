package ent_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"entgo.io/ent"
	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest/suite"
	"github.com/ormoutbox/ormoutbox/entoutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/entclient"
	"github.com/ormoutbox/ormoutbox/integration/internal/entclient/document"
	"github.com/ormoutbox/ormoutbox/integration/internal/entclient/order"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/refused"
	"github.com/ormoutbox/ormoutbox/integration/internal/sqlpause"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

func openRefused(t *testing.T, db testdb.DB) *entEnv {
	t.Helper()
	e := openEnt(t, db)
	tellOrders(e)
	entoutbox.On(e.ob, func(op core.Op, d *entclient.Document) []core.Event {
		return []core.Event{{Type: op.String() + "." + d.Name}}
	})
	entoutbox.On(e.ob, func(core.Op, *entclient.Tag) []core.Event { return []core.Event{{Type: "tag"}} })
	for i, name := range []string{"a", "b", "c"} {
		e.plainOrder(t, name)
		fixture.MustExec(t, e.Plain, fmt.Sprintf("INSERT INTO capture_documents (id, name, note, stock) "+
			"VALUES ('%d', '%s', '%[1]d', %[1]d)", i+1, name))
	}
	e.Order.Update().Where(order.Qty(99)).SetQty(1).ExecX(t.Context()) // the driver gets to know the client
	fixture.MustExec(t, e.Plain, "INSERT INTO tags (name, qty) VALUES ('t', 0)")
	return e
}

func execs(texts ...string) func(t *testing.T, e *entEnv) {
	return func(t *testing.T, e *entEnv) {
		t.Helper()
		for _, text := range texts {
			fixture.MustExec(t, e.Plain, text)
		}
	}
}

// entTx is a transaction, with what the cases ask for.
type entTx struct {
	*entclient.Tx
	e   *entEnv
	raw dialect.Tx // for texts
}

// onMySQL returns an error unless the database is MySQL or MariaDB.
func (tx entTx) onMySQL() error {
	if tx.e.db.Dialect != core.MySQL {
		return fmt.Errorf("%w: the database has no such statement", errors.ErrUnsupported)
	}
	return nil
}

func (tx entTx) text(ctx context.Context, text string) error {
	return tx.raw.Exec(ctx, text, []any{}, nil)
}

// entRunRaw runs fn in a transaction of the driver.
func entRunRaw(ctx context.Context, e *entEnv, fn func(tx entTx) error) error {
	tx, err := e.ob.Driver().Tx(ctx)
	if err != nil {
		return err
	}
	if err := fn(entTx{e: e, raw: tx}); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

type entRefusal = refused.Case[*entEnv, entTx]

func entRunTx(ctx context.Context, e *entEnv, c *entclient.Client, fn func(tx entTx) error) error {
	tx, err := c.BeginTx(ctx, &sql.TxOptions{})
	if err != nil {
		return err
	}
	if err := fn(entTx{Tx: tx, e: e}); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// The table of what is refused says what happens.
func TestEntRefused(t *testing.T) {
	t.Parallel()
	const recorders, ids = "Ent has no recorders", "the generated code does not set such ids"
	refused.Test(t, refused.ORM[*entEnv, entTx]{
		Name: "Ent", Open: openRefused,
		Tx: func(ctx context.Context, e *entEnv, fn func(tx entTx) error) error {
			return entRunTx(ctx, e, e.Client, fn)
		},
		Lacks: map[string]string{
			"it has no key, and several rows changed": recorders,
			"only other rows changed (`OR`)":          recorders,
			"generated keys inserted only some rows":  recorders,
			"than a statement can have parameters":    recorders,
			"in which the database generates keys":    ids,
			"whose key the column rounds":             ids,
			"no primary key: updates":                 "the client has no type without an id",
			"no primary key: other inserts":           "the client has no type without an id",
		},
	}, slices.Concat(entRefusedOnly(), entRefusedChanges(), entRefusedInserts()))
}

func entRefusedOnly() []entRefusal {
	create := func(ctx context.Context, tx entTx) error { return tx.Order.Create().SetName("new").Exec(ctx) }
	return []entRefusal{
		{
			Line: "a client that is not on the outbox's driver", Name: "",
			Tx: func(ctx context.Context, e *entEnv, fn func(tx entTx) error) error {
				bare := entclient.NewClient(entclient.Driver(e.drv))
				bare.Use(e.ob.Hook())
				return entRunTx(ctx, e, bare, fn)
			},
			Do: create,
		},
		{Line: "begins with WITH", Tx: entRunRaw, Do: func(ctx context.Context, tx entTx) error {
			return tx.text(ctx, "WITH x AS (SELECT 1) UPDATE parents SET qty = 2")
		}},
		{
			Line: "a bulk with functions of `OnMutation`", Name: "seen in part",
			Set: func(t *testing.T, e *entEnv) {
				t.Helper()
				mapped, plain := e.ob.Hook(onOrders()), e.ob.Hook()
				e.Use(func(next ent.Mutator) ent.Mutator {
					return ent.MutateFunc(func(ctx context.Context, m ent.Mutation) (ent.Value, error) {
						if name, _ := m.Field("name"); name == "quiet" {
							return plain(next).Mutate(ctx, m)
						}
						return mapped(next).Mutate(ctx, m)
					})
				})
			},
			Do: func(ctx context.Context, tx entTx) error {
				return tx.Order.CreateBulk(tx.Order.Create().SetName("quiet"), tx.Order.Create().SetName("n")).Exec(ctx)
			},
		},
		{
			Line: "whose context another hook did not pass on",
			Set: func(t *testing.T, e *entEnv) {
				t.Helper()
				e.Use(e.ob.Hook(onOrders()), func(next ent.Mutator) ent.Mutator {
					return ent.MutateFunc(func(_ context.Context, m ent.Mutation) (ent.Value, error) {
						return next.Mutate(context.Background(), m)
					})
				})
			},
			Do: create,
		},
		{
			Line: "a bulk with functions of `OnMutation`", Name: "one of two",
			Set: func(t *testing.T, e *entEnv) {
				t.Helper()
				e.Use(e.ob.Hook(onAny(nil)))
				// SQLite does not see in time that another connection has made an index.
				fixture.MustExec(t, e.pool(), "CREATE UNIQUE INDEX r_name ON tags (name)")
			},
			Do: func(ctx context.Context, tx entTx) error {
				return tx.Tag.CreateBulk(tx.Tag.Create().SetName("x"), tx.Tag.Create().SetName("x")).
					OnConflict(entsql.ConflictColumns("name")).DoNothing().Exec(ctx)
			},
		},
	}
}

func entRefusedChanges() []entRefusal {
	many := func(t *testing.T, e *entEnv) {
		t.Helper()
		for from := 0; from < 100_001; from += 10_000 {
			var values []string
			for i := range min(10_000, 100_001-from) {
				values = append(values, fmt.Sprintf("('n%d', 5, 1, 0)", from+i))
			}
			fixture.MustExec(t, e.Plain, "INSERT INTO parents (name, qty, tenant, updated_at) VALUES "+
				strings.Join(values, ", "))
		}
	}
	conditions := func(do func(tx entTx, where func(*entsql.Selector)) error) func(context.Context, entTx) error {
		return func(_ context.Context, tx entTx) error {
			if err := tx.onMySQL(); err != nil {
				return err
			}
			var errs []error
			for _, text := range refused.Conditions {
				errs = append(errs, do(tx, func(s *entsql.Selector) { s.Where(entsql.ExprP(text)) }))
			}
			return refused.All(errs...)
		}
	}
	return []entRefusal{
		{Line: "cannot be read back into the model", Tx: entRunRaw, Do: func(ctx context.Context, tx entTx) error {
			if tx.e.db.Dialect != core.SQLite {
				return fmt.Errorf("%w: the column has only what can be read", errors.ErrUnsupported)
			}
			return tx.text(ctx, "UPDATE tags SET qty = 'zz'")
		}},
		{
			Line: "more than 100,000 rows", Name: "update", After: "PostgreSQL, SQLite", Long: true, Set: many,
			Do: func(ctx context.Context, tx entTx) error {
				return tx.Order.Update().Where(order.Qty(5)).SetQty(6).Exec(ctx)
			},
		},
		{
			Line: "more than 100,000 rows", Name: "delete", After: "PostgreSQL, SQLite, MariaDB", Long: true, Set: many,
			Do: func(ctx context.Context, tx entTx) error {
				_, err := tx.Order.Delete().Where(order.Qty(5)).Exec(ctx)
				return err
			},
		},
		{
			Line: "keys are no integers", Long: true,
			Set: func(t *testing.T, e *entEnv) {
				t.Helper()
				for from := 0; from < 66_000; from += 1000 {
					var values []string
					for i := range 1000 {
						values = append(values, fmt.Sprintf("('k%d', 'k%[1]d', '', 5)", from+i))
					}
					fixture.MustExec(t, e.Plain, "INSERT INTO capture_documents (id, name, note, stock) VALUES "+
						strings.Join(values, ", "))
				}
			},
			Do: func(ctx context.Context, tx entTx) error {
				return tx.Document.Update().Where(document.Stock(5)).SetStock(6).Exec(ctx)
			},
		},
		{Line: "`RAND()`", Name: "update", Do: conditions(func(tx entTx, where func(*entsql.Selector)) error {
			return tx.Order.Update().Where(where).SetQty(4).Exec(context.Background())
		})},
		{Line: "`RAND()`", Name: "delete", On: "MySQL", Do: conditions(
			func(tx entTx, where func(*entsql.Selector)) error {
				_, err := tx.Order.Delete().Where(where).Exec(context.Background())
				return err
			})},
		{
			Line: "READ COMMITTED",
			Open: func(t *testing.T, db testdb.DB) *entEnv {
				t.Helper()
				db.Wrap = sqlpause.Connector
				return openRefused(t, db)
			},
			Tx: func(ctx context.Context, e *entEnv, fn func(tx entTx) error) error {
				defer e.Plain.ExecContext(ctx, "DELETE FROM parents WHERE qty = 9")
				tx, err := e.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
				if err != nil {
					return errors.Join(err, fn(entTx{e: e}))
				}
				if err := fn(entTx{Tx: tx, e: e}); err != nil {
					return errors.Join(err, tx.Rollback())
				}
				return tx.Commit()
			},
			Do: func(ctx context.Context, tx entTx) error {
				if err := tx.onMySQL(); err != nil {
					return err
				}
				update := tx.Order.Update().Where(order.Qty(9)).SetQty(8)
				if err := update.Exec(ctx); err != nil { // the adapter has asked for the version
					return err
				}
				n := 0
				ctx = suite.ContextWithPause(ctx, func() (err error) {
					if n++; n == 2 {
						_, err = tx.e.Plain.ExecContext(context.Background(),
							"INSERT INTO parents (name, qty, tenant, updated_at) VALUES ('late', 9, 1, 0)")
					}
					return err
				})
				return tx.Order.Update().Where(order.Qty(9)).SetQty(8).Exec(ctx)
			},
		},
		{
			Line: "for which `RETURNING` fails",
			Set: func(t *testing.T, e *entEnv) {
				t.Helper()
				if e.db.Dialect == core.Postgres {
					execs("CREATE RULE r_rule AS ON UPDATE TO parents DO INSTEAD "+
						"UPDATE capture_items SET stock = 4")(t, e)
				}
			},
			Do: func(ctx context.Context, tx entTx) error {
				if tx.e.db.Dialect != core.Postgres {
					return errors.ErrUnsupported
				}
				return tx.Order.Update().SetQty(8).Exec(ctx)
			},
		},
	}
}

func entRefusedInserts() []entRefusal {
	setStock := entsql.ResolveWith(func(u *entsql.UpdateSet) { u.SetExcluded(document.FieldStock) })
	doc := func(tx entTx, id, name string) *entclient.DocumentCreate {
		return tx.Document.Create().SetID(id).SetName(name).SetNote("2").SetStock(8)
	}
	return []entRefusal{
		{Line: "an upsert with a given key", Do: func(ctx context.Context, tx entTx) error {
			if err := tx.onMySQL(); err != nil {
				return err
			}
			return tx.Document.CreateBulk(doc(tx, "8", "a"), doc(tx, "9", "z")).
				OnConflict(entsql.ConflictColumns(document.FieldID), setStock).Exec(ctx)
		}},
		{
			Line: "a batch upsert with generated keys",
			Set:  execs("CREATE UNIQUE INDEX again ON parents (qty, name)"),
			Do: func(ctx context.Context, tx entTx) error {
				return tx.Order.CreateBulk(tx.Order.Create().SetName("a"), tx.Order.Create().SetName("new")).
					OnConflict(entsql.ConflictColumns(order.FieldName)).UpdateNewValues().Exec(ctx)
			},
		},
		{
			Line: "`clientFoundRows=true`",
			Open: func(t *testing.T, db testdb.DB) *entEnv {
				t.Helper()
				return openRefused(t, refused.FoundRows(db))
			},
			Do: func(ctx context.Context, tx entTx) error {
				return tx.Document.CreateBulk(doc(tx, "1", "1"), doc(tx, "9", "9")).
					OnConflict(entsql.ConflictColumns(document.FieldID)).DoNothing().Exec(ctx)
			},
		},
		{
			Line: "another transaction has just deleted",
			Tx: func(ctx context.Context, e *entEnv, fn func(tx entTx) error) error {
				defer e.Plain.ExecContext(ctx,
					"INSERT INTO capture_documents (id, name, note, stock) VALUES ('1', 'a', '1', 1)")
				return entRunTx(ctx, e, e.Client, func(tx entTx) error {
					if _, err := tx.Document.Query().All(ctx); err != nil { // the snapshot
						return err
					}
					if e.db.Dialect != core.SQLite { // where one transaction writes at a time
						if _, err := e.Plain.ExecContext(ctx,
							"DELETE FROM capture_documents WHERE id = '1'"); err != nil {
							return err
						}
					}
					return fn(tx)
				})
			},
			Do: func(ctx context.Context, tx entTx) error {
				return tx.Document.CreateBulk(doc(tx, "1", "1"), doc(tx, "9", "9")).
					OnConflict(entsql.ConflictColumns(document.FieldID)).DoNothing().Exec(ctx)
			},
		},
		{Line: "whose key is an expression", On: "MySQL", Tx: entRunRaw, Do: func(ctx context.Context, tx entTx) error {
			return tx.text(ctx, "INSERT INTO capture_documents (id, name, note, stock) SELECT '9', '9', '9', 9")
		}},
		{
			Line: "if several unique keys may have found that row",
			Set:  execs("CREATE UNIQUE INDEX r_note ON capture_documents (note)"),
			Do: func(ctx context.Context, tx entTx) error {
				if err := tx.onMySQL(); err != nil {
					return err
				}
				return doc(tx, "9", "a").OnConflict(setStock).Exec(ctx)
			},
		},
	}
}
