package integration

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// The adapter suite over database/sql: transactions of the Transactor on a plain pool and on one opened with Connector, and plain *sql.Tx of
// such a pool, found by TxOf.
func TestAdapterSuiteSQL(t *testing.T) {
	for name, open := range map[string]func(*testing.T, testdb.DB) (*sql.DB, core.Transactor){
		"transactor": func(t *testing.T, db testdb.DB) (*sql.DB, core.Transactor) {
			pool := db.Open(t)
			return pool, sqloutbox.NewTransactor(pool, db.Dialect)
		},
		"transactor and connector": func(t *testing.T, db testdb.DB) (*sql.DB, core.Transactor) {
			pool := trackedPool(t, db)
			return pool, sqloutbox.NewTransactor(pool, db.Dialect)
		},
		"sql.Tx and connector": func(t *testing.T, db testdb.DB) (*sql.DB, core.Transactor) {
			pool := trackedPool(t, db)
			return pool, plainTransactor{pool}
		},
	} {
		t.Run(name, func(t *testing.T) {
			testdb.Each(t, func(t *testing.T, db testdb.DB) {
				outboxtest.TestAdapter(t, adapterHarness(db, func(t *testing.T, db testdb.DB, cfg core.Config) outboxtest.Adapter {
					pool, transactor := open(t, db)
					return sqlAdapter(t, db, pool, transactor, cfg)
				}))
			})
		})
	}
}

// adapterHarness gives each case tables of its own in a database of the kind of db.
func adapterHarness(db testdb.DB, open func(*testing.T, testdb.DB, core.Config) outboxtest.Adapter) outboxtest.AdapterHarness {
	return outboxtest.AdapterHarness{
		Open: func(t *testing.T, cfg core.Config) outboxtest.Adapter {
			own := apart(t, db)
			return withTrouble(t, own, func(own testdb.DB) outboxtest.Adapter { return open(t, own, cfg) })
		},
		AbortsOnError: db.Dialect == core.Postgres,
		SingleWriter:  db.Dialect == core.SQLite,
		Programs:      number("OUTBOX_TEST_PROGRAMS"),
		Seed:          uint64(number("OUTBOX_TEST_SEED")),
	}
}

var schemas atomic.Int64

// apart returns an empty database, or an empty schema of db where databases are slow to make.
func apart(t *testing.T, db testdb.DB) testdb.DB {
	t.Helper()
	switch db.Dialect {
	case core.MySQL:
		return testdb.MariaDB(t)
	case core.SQLite:
		own := testdb.SQLite(t)
		own.DSN += "&_pragma=foreign_keys(1)&_pragma=synchronous(OFF)"
		return own
	case core.Postgres:
	}
	schema := fmt.Sprintf("case_%d", schemas.Add(1))
	mustExec(t, db.Open(t), "CREATE SCHEMA "+schema)
	db.DSN += "&search_path=" + schema
	return db
}

// number reads an optional variable of the environment: more random programs than usual, or the seed of a run that failed.
func number(variable string) int {
	n, _ := strconv.ParseUint(os.Getenv(variable), 10, 64)
	return int(n)
}

func trackedPool(t *testing.T, db testdb.DB) *sql.DB {
	t.Helper()
	pool := sql.OpenDB(sqloutbox.Connector(db.Connector(t), db.Dialect))
	pool.SetMaxOpenConns(30)
	t.Cleanup(func() { _ = pool.Close() })
	return pool
}

// newOutbox creates the tables in the database and returns an Outbox on them. It has a pool of its own, as a relay should.
func newOutbox(t *testing.T, db testdb.DB, cfg core.Config) *core.Outbox {
	t.Helper()
	repo, err := sqloutbox.New(db.Open(t), sqloutbox.Config{Dialect: db.Dialect})
	if err != nil {
		t.Fatal(err)
	}
	if err := repo.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	cfg.Repository = repo
	ob, err := core.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return ob
}

func sqlAdapter(t *testing.T, db testdb.DB, pool *sql.DB, transactor core.Transactor, cfg core.Config) outboxtest.Adapter {
	t.Helper()
	ob := newOutbox(t, db, cfg)
	return outboxtest.Adapter{
		Outbox:     ob,
		Transactor: transactor,
		Publish: func(ctx context.Context, events ...core.Event) error {
			_, err := ob.Publish(ctx, nil, events...)
			return err
		},
		Exec: func(ctx context.Context, query string) error {
			tx, ok := core.TxFromContext(ctx)
			if !ok {
				return core.ErrNoTransaction
			}
			_, err := tx.Exec(ctx, query)
			return err
		},
		Stored:       storedEvents(db.Open(t)),
		RefuseCommit: refuseCommit(t, db),
	}
}

// storedEvents reads the ids of all events in the table.
func storedEvents(pool *sql.DB) func(context.Context) ([]string, error) {
	return func(ctx context.Context) ([]string, error) {
		rows, err := pool.QueryContext(ctx, "SELECT event_id FROM outbox_event")
		if err != nil {
			return nil, err
		}
		defer rows.Close()
		var ids []string
		for rows.Next() {
			var id string
			if err := rows.Scan(&id); err != nil {
				return nil, err
			}
			ids = append(ids, id)
		}
		return ids, rows.Err()
	}
}

// plainTransactor uses *sql.Tx alone, as an application does that knows nothing of the outbox but TxOf.
type plainTransactor struct{ pool *sql.DB }

type plainTx struct{ core.Tx }

func (p plainTransactor) RunInTx(ctx context.Context, fn func(context.Context, core.Tx) error) (err error) {
	if outer, ok := core.TxFromContext(ctx); ok {
		return p.nested(ctx, outer, fn)
	}
	sqlTx, err := p.pool.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = sqlTx.Rollback() }() // after Commit it does nothing
	tx, err := sqloutbox.TxOf(ctx, sqlTx)
	if err != nil {
		return err
	}
	if err := fn(core.ContextWithTx(ctx, plainTx{tx}), plainTx{tx}); err != nil {
		return err
	}
	if err := tx.Err(); err != nil { // fn may have ignored a deadlock: MariaDB answers COMMIT as if nothing had happened
		return err
	}
	return sqlTx.Commit()
}

func (p plainTransactor) nested(ctx context.Context, tx core.Tx, fn func(context.Context, core.Tx) error) error {
	depth, _ := ctx.Value(depthKey{}).(int)
	ctx = context.WithValue(ctx, depthKey{}, depth+1)
	name := fmt.Sprintf("nested_%d", depth)
	if _, err := tx.Exec(ctx, "SAVEPOINT "+name); err != nil {
		return err
	}
	rollback := true
	defer func() {
		if rollback {
			_, _ = tx.Exec(context.WithoutCancel(ctx), "ROLLBACK TO SAVEPOINT "+name)
		}
	}()
	if err := fn(ctx, tx); err != nil {
		return err
	}
	rollback = false
	_, err := tx.Exec(ctx, "RELEASE SAVEPOINT "+name)
	return err
}

type depthKey struct{}
