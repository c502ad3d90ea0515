package sql_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest/suite"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/adapters"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// The adapter suite over database/sql runs on transactions of the Transactor, on a plain pool and
// on a pool opened with Connector. It also runs on plain *sql.Tx of such a pool, which TxOf finds.
func TestAdapterSuiteSQL(t *testing.T) {
	t.Parallel()
	type opener func(*testing.T, testdb.DB) (*sql.DB, core.Transactor)
	testdb.EachWay(t, []testdb.Way[opener]{
		{Name: "transactor", Of: func(t *testing.T, db testdb.DB) (*sql.DB, core.Transactor) {
			pool := db.Open(t)
			return pool, sqltx.NewTransactor(pool, db.Dialect)
		}},
		{Name: "transactor and connector", Of: func(t *testing.T, db testdb.DB) (*sql.DB, core.Transactor) {
			pool := fixture.TrackedPool(t, db)
			return pool, sqltx.NewTransactor(pool, db.Dialect)
		}},
		{Name: "sql.Tx and connector", Of: func(t *testing.T, db testdb.DB) (*sql.DB, core.Transactor) {
			pool := fixture.TrackedPool(t, db)
			return pool, plainTransactor{pool}
		}},
	}, func(t *testing.T, db testdb.DB, open opener) {
		suite.TestAdapter(t, adapters.Harness(db,
			func(t *testing.T, db testdb.DB, cfg core.Config) suite.Adapter {
				pool, transactor := open(t, db)
				a := adapters.SQL(t, db, pool, transactor, cfg)
				if _, plain := transactor.(plainTransactor); plain {
					a.Another = plainTransactor{pool}
				} else {
					a.Another = sqltx.NewTransactor(pool, "")
				}
				return a
			}))
	})
}

// plainTransactor uses *sql.Tx alone, like an application that knows only TxOf of the outbox.
type plainTransactor struct{ pool *sql.DB }

type plainTx struct {
	core.Tx
	pool *sql.DB
}

// Pool implements the method by which core.Outbox.CheckTx finds the pool.
func (t plainTx) Pool() *sql.DB { return t.pool }

func (p plainTransactor) RunInTx(ctx context.Context, fn func(context.Context, core.Tx) error) (err error) {
	if outer, ok := core.TxFromContext(ctx); ok && outer.(plainTx).pool == p.pool {
		return p.nested(ctx, outer, fn)
	}
	sqlTx, err := p.pool.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = sqlTx.Rollback() }() // after Commit it does nothing
	tx, err := sqltx.TxOf(ctx, sqlTx)
	if err != nil {
		return err
	}
	own := plainTx{tx, tx.(interface{ Pool() *sql.DB }).Pool()}
	if err := fn(core.ContextWithTx(ctx, own), own); err != nil {
		return err
	}
	// fn may have ignored a deadlock. MariaDB answers COMMIT as if nothing had happened.
	if err := tx.Err(); err != nil {
		return err
	}
	return sqlTx.Commit()
}

func (p plainTransactor) nested(ctx context.Context, tx core.Tx, fn func(context.Context, core.Tx) error) error {
	depth, _ := ctx.Value(depthKey{}).(int)
	ctx = context.WithValue(ctx, depthKey{}, depth+1)
	name := fmt.Sprintf("nested_%d", depth)
	return sqltx.RunInSavepoint(ctx, tx, name, func() error { return fn(ctx, tx) })
}

type depthKey struct{}
