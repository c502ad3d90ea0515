package integration

import (
	"cmp"
	"context"
	"database/sql"
	"testing"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/mysqldialect"
	"github.com/uptrace/bun/dialect/pgdialect"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	"github.com/uptrace/bun/driver/pgdriver"
	"github.com/uptrace/bun/schema"

	"github.com/ormoutbox/ormoutbox/bunoutbox"
	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// bunWay is how the pool below Bun is opened.
type bunWay struct {
	pgdriver  bool // PostgreSQL over Bun's own driver, not pgx
	connector bool // with sqloutbox.Connector
}

// eachBun runs fn on each database, PostgreSQL over both drivers, each in the ways that only lets pass. A nil one lets all pass.
func eachBun(t *testing.T, only func(bunWay) bool, fn func(t *testing.T, db testdb.DB, way bunWay)) {
	t.Helper()
	for name, way := range map[string]bunWay{
		"plain": {}, "connector": {connector: true}, "pgdriver": {pgdriver: true}, "pgdriver and connector": {pgdriver: true, connector: true},
	} {
		if only != nil && !only(way) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			if way.pgdriver {
				fn(t, testdb.Postgres(t), way)
				return
			}
			testdb.Each(t, func(t *testing.T, db testdb.DB) { fn(t, db, way) })
		})
	}
}

// openBun opens Bun on db.
func openBun(t *testing.T, db testdb.DB, way bunWay) *bun.DB {
	t.Helper()
	connector := db.Connector(t)
	if way.pgdriver {
		connector = pgdriver.NewConnector(pgdriver.WithDSN(db.DSN), pgdriver.WithInsecure(true))
		if db.Wrap != nil {
			connector = db.Wrap(connector)
		}
	}
	if way.connector {
		connector = sqloutbox.Connector(connector, db.Dialect)
	}
	pool := sql.OpenDB(connector)
	pool.SetMaxOpenConns(30)
	t.Cleanup(func() { _ = pool.Close() })
	var dialect schema.Dialect
	switch db.Dialect {
	case core.Postgres:
		dialect = pgdialect.New()
	case core.MySQL:
		dialect = mysqldialect.New()
	default:
		dialect = sqlitedialect.New()
	}
	return bun.NewDB(pool, dialect)
}

// The adapter suite over Bun, with and without the connector, PostgreSQL over both drivers.
func TestAdapterSuiteBun(t *testing.T) {
	eachBun(t, nil, func(t *testing.T, db testdb.DB, way bunWay) {
		h := adapterHarness(db, func(t *testing.T, db testdb.DB, cfg core.Config) outboxtest.Adapter {
			return bunAdapter(t, db, way, cfg)
		})
		h.Programs = cmp.Or(h.Programs, 250)
		outboxtest.TestAdapter(t, h)
	})
}

func bunAdapter(t *testing.T, db testdb.DB, way bunWay, cfg core.Config) outboxtest.Adapter {
	t.Helper()
	bdb := openBun(t, db, way)
	own := newOutbox(t, db, cfg)
	ob, err := bunoutbox.New(bdb, bunoutbox.Config{Outbox: own})
	if err != nil {
		t.Fatal(err)
	}
	return outboxtest.Adapter{
		Outbox:     own,
		Transactor: bunoutbox.Transactor(bdb.WithQueryHook(ob.Hook())),
		Nested: func(ctx context.Context, fn func(context.Context) error) error {
			tx, err := bunoutbox.FromContext(ctx)
			if err != nil {
				return err
			}
			return tx.RunInTx(context.Background(), nil, func(context.Context, bun.Tx) error { return fn(ctx) })
		},
		Publish: func(ctx context.Context, events ...core.Event) error {
			tx, err := bunoutbox.FromContext(ctx)
			if err != nil {
				return err
			}
			return ob.Publish(ctx, tx, events...)
		},
		Exec: func(ctx context.Context, query string) error {
			tx, err := bunoutbox.FromContext(ctx)
			if err != nil {
				return err
			}
			_, err = tx.ExecContext(ctx, query)
			return err
		},
		Stored:       storedEvents(db.Open(t)),
		RefuseCommit: refuseCommit(t, db),
	}
}
