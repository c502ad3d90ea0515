package managers_test

import (
	"context"
	"database/sql"
	"testing"

	trmgorm "github.com/avito-tech/go-transaction-manager/drivers/gorm/v2"
	trmpgx "github.com/avito-tech/go-transaction-manager/drivers/pgxv5/v2"
	trmsql "github.com/avito-tech/go-transaction-manager/drivers/sql/v2"
	"github.com/avito-tech/go-transaction-manager/trm/v2"
	"github.com/avito-tech/go-transaction-manager/trm/v2/manager"
	"github.com/avito-tech/go-transaction-manager/trm/v2/settings"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/adapter"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/gormoutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/adapters"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
	"github.com/ormoutbox/ormoutbox/pgxoutbox"
)

// managed is a transaction manager with an outbox.
type managed struct {
	*fixture.FastPath
	factory trm.TrFactory
	// insert and publish work in the transaction that the manager put into the context.
	insert  func(ctx context.Context, name string) error
	publish func(ctx context.Context, events ...core.Event) error
	// bridge puts the transaction into the context as the outbox needs it.
	bridge func(ctx context.Context, tr trm.Transaction) context.Context
}

func newManaged(t *testing.T, db testdb.DB) (m *managed, cfg adapter.Config) {
	t.Helper()
	m = &managed{FastPath: fixture.NewFastPath(t, db)}
	m.Watch(&cfg)
	fixture.MustExec(t, m.Plain, "CREATE TABLE things (name VARCHAR(20) PRIMARY KEY)")
	return m, cfg
}

// bridged is what docs/transaction-managers.md says.
func bridged(f trm.TrFactory, bridge func(context.Context, trm.Transaction) context.Context) trm.TrFactory {
	return func(ctx context.Context, s trm.Settings) (context.Context, trm.Transaction, error) {
		ctx, tr, err := f(ctx, s)
		if err == nil {
			ctx = bridge(ctx, tr)
		}
		return ctx, tr, err
	}
}

// check runs transactions of the manager: without one, rolled back, nested, and of its own.
func (m *managed) check(t *testing.T) {
	t.Helper()
	m.RunRelay(t)
	t.Run("getter", func(t *testing.T) { m.run(t, "g", m.factory, m.publish) })
	t.Run("bridged", func(t *testing.T) {
		m.run(t, "b", bridged(m.factory, m.bridge), func(ctx context.Context, events ...core.Event) error {
			_, err := m.Outbox.Publish(ctx, nil, events...)
			return err
		})
	})
	m.WantHot(t, "g-outer", "g-inner", "g-new", "g-after", "b-outer", "b-inner", "b-new", "b-after")
	m.WantCount(t, "things", 8)
}

func (m *managed) run(t *testing.T, prefix string, f trm.TrFactory,
	publish func(ctx context.Context, events ...core.Event) error,
) {
	t.Helper()
	as := func(p trm.Propagation) trm.Settings { return settings.Must(settings.WithPropagation(p)) }
	tm := manager.Must(f, manager.WithSettings(as(trm.PropagationNested)))
	place := func(ctx context.Context, name string) error {
		if err := m.insert(ctx, prefix+name); err != nil {
			return err
		}
		return publish(ctx, fixture.Event(prefix+"-"+name))
	}
	fails := func(name string) func(ctx context.Context) error {
		return func(ctx context.Context) error {
			fixture.NoError(t, place(ctx, name))
			return fixture.ErrNoStock
		}
	}
	fixture.WantError(t, publish(t.Context(), fixture.Event("x")), core.ErrNoTransaction)
	fixture.WantError(t, tm.Do(t.Context(), fails("ghost")), fixture.ErrNoStock)
	fixture.NoError(t, tm.Do(t.Context(), func(ctx context.Context) error {
		fixture.NoError(t, place(ctx, "outer"))
		fixture.WantError(t, tm.Do(ctx, fails("undone")), fixture.ErrNoStock)
		fixture.NoError(t, tm.Do(ctx, func(ctx context.Context) error { return place(ctx, "inner") }))
		return tm.DoWithSettings(ctx, as(trm.PropagationsMandatory), func(ctx context.Context) error {
			return place(ctx, "after")
		})
	}))
	fixture.NoError(t, tm.DoWithSettings(t.Context(), as(trm.PropagationRequiresNew), func(ctx context.Context) error {
		return place(ctx, "new")
	}))
}

func TestTransactionManagerGORM(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		m, cfg := newManaged(t, db)
		gdb, err := gorm.Open(adapters.GORMDialector(db, db.Open(t)), &gorm.Config{Logger: logger.Discard})
		fixture.NoError(t, err)
		outbox, err := gormoutbox.New(gdb, cfg)
		fixture.NoError(t, err)
		m.Outbox, m.factory = outbox.Outbox(), trmgorm.NewDefaultFactory(gdb)
		tx := func(ctx context.Context) *gorm.DB { return trmgorm.DefaultCtxGetter.DefaultTrOrDB(ctx, gdb) }
		m.insert = func(ctx context.Context, name string) error {
			return tx(ctx).WithContext(ctx).Exec("INSERT INTO things (name) VALUES (?)", name).Error
		}
		m.publish = func(ctx context.Context, events ...core.Event) error {
			return gormoutbox.Publish(ctx, tx(ctx), events...)
		}
		m.bridge = func(ctx context.Context, tr trm.Transaction) context.Context {
			return gormoutbox.Context(ctx, tr.Transaction().(*gorm.DB))
		}
		m.check(t)
		// The Transactor of the inbox joins.
		tm := manager.Must(bridged(m.factory, m.bridge))
		fixture.WantError(t, tm.Do(t.Context(), func(ctx context.Context) error {
			fixture.NoError(t, gormoutbox.Transactor(gdb).RunInTx(ctx, func(context.Context, core.Tx) error {
				return m.insert(ctx, "joined")
			}))
			return fixture.ErrNoStock
		}), fixture.ErrNoStock)
		m.WantCount(t, "things", 8)
	})
}

func TestTransactionManagerSQL(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		m, cfg := newManaged(t, db)
		pool := fixture.TrackedPool(t, db)
		m.Outbox, m.factory = newOutbox(t, db, cfg), trmsql.NewDefaultFactory(pool)
		tx := func(ctx context.Context) trmsql.Tr { return trmsql.DefaultCtxGetter.DefaultTrOrDB(ctx, pool) }
		insert := "INSERT INTO things (name) VALUES (?)"
		if db.Dialect == core.Postgres {
			insert = "INSERT INTO things (name) VALUES ($1)"
		}
		m.insert = func(ctx context.Context, name string) error {
			_, err := tx(ctx).ExecContext(ctx, insert, name)
			return err
		}
		m.publish = func(ctx context.Context, events ...core.Event) error {
			otx, err := sqltx.TxOf(ctx, tx(ctx))
			if err != nil {
				return err
			}
			_, err = m.Outbox.Publish(ctx, otx, events...)
			return err
		}
		m.bridge = func(ctx context.Context, tr trm.Transaction) context.Context {
			otx, err := sqltx.TxOf(ctx, tr.Transaction().(*sql.Tx))
			fixture.NoError(t, err)
			return core.ContextWithTx(ctx, otx)
		}
		m.check(t)
		// The Transactor of the inbox refuses to begin a second transaction.
		tm, transactor := manager.Must(bridged(m.factory, m.bridge)), sqltx.NewTransactor(pool, db.Dialect)
		fixture.NoError(t, tm.Do(t.Context(), func(ctx context.Context) error {
			err := transactor.RunInTx(ctx, func(context.Context, core.Tx) error { return nil })
			fixture.WantError(t, err, core.ErrOtherTransactor)
			return nil
		}))
	})
}

func TestTransactionManagerPGX(t *testing.T) {
	t.Parallel()
	testdb.EachPostgres(t, func(t *testing.T, db testdb.DB) {
		m, cfg := newManaged(t, db)
		own, err := pgxpool.New(t.Context(), db.DSN)
		fixture.NoError(t, err)
		t.Cleanup(own.Close)
		pool := pgxoutbox.NewPool(own)
		m.Outbox, m.factory = newOutbox(t, db, cfg), trmpgx.NewDefaultFactory(pool)
		tx := func(ctx context.Context) trmpgx.Tr { return trmpgx.DefaultCtxGetter.DefaultTrOrDB(ctx, pool) }
		m.insert = func(ctx context.Context, name string) error {
			_, err := tx(ctx).Exec(ctx, "INSERT INTO things (name) VALUES ($1)", name)
			return err
		}
		m.publish = func(ctx context.Context, events ...core.Event) error {
			own, _ := tx(ctx).(pgx.Tx) // nil without a transaction
			_, err := pgxoutbox.Publish(ctx, m.Outbox, own, events...)
			return err
		}
		m.bridge = func(ctx context.Context, tr trm.Transaction) context.Context {
			return pgxoutbox.Context(ctx, tr.Transaction().(pgx.Tx))
		}
		m.check(t)
		tm := manager.Must(bridged(m.factory, m.bridge))
		fixture.WantError(t, tm.Do(t.Context(), func(ctx context.Context) error {
			fixture.NoError(t, pgxoutbox.Transactor(pool).RunInTx(ctx, func(ctx context.Context, _ core.Tx) error {
				return m.insert(ctx, "joined")
			}))
			return fixture.ErrNoStock
		}), fixture.ErrNoStock)
		m.WantCount(t, "things", 8)
	})
}

// A manager of one's own has the transaction under its own key. One line where it begins is enough.
func TestHomeMadeManager(t *testing.T) {
	t.Parallel()
	type key struct{}
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		m, cfg := newManaged(t, db)
		gdb, err := gorm.Open(adapters.GORMDialector(db, db.Open(t)), &gorm.Config{Logger: logger.Discard})
		fixture.NoError(t, err)
		outbox, err := gormoutbox.New(gdb, cfg)
		fixture.NoError(t, err)
		m.Outbox = outbox.Outbox()
		m.RunRelay(t)
		do := func(ctx context.Context, fn func(ctx context.Context) error) error {
			return gdb.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
				ctx := context.WithValue(ctx, key{}, tx)
				return fn(gormoutbox.Context(ctx, tx)) // the one line
			})
		}
		ran := 0
		for _, end := range []error{fixture.ErrNoStock, nil} {
			err := do(t.Context(), func(ctx context.Context) error {
				tx := ctx.Value(key{}).(*gorm.DB)
				fixture.NoError(t, tx.Exec("INSERT INTO things (name) VALUES ('a')").Error)
				fixture.NoError(t, outbox.Publish(ctx, nil, fixture.Event("nil")))
				own, ok := core.TxFromContext(ctx)
				fixture.Must(t, ok, "no transaction in the context")
				fixture.NoError(t, sqltx.AfterCommit(own, func() { ran++ }))
				return end
			})
			fixture.WantError(t, err, end)
		}
		m.WantHot(t, "nil")
		m.WantCount(t, "things", 1)
		fixture.Check(t, ran == 1, "AfterCommit ran %d times", ran)
	})
}
