package pgxoutbox_test

import (
	"context"
	"database/sql"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
	"github.com/ormoutbox/ormoutbox/pgxoutbox"
)

// poolConns is how many connections a pool of the test has.
const poolConns = 3

const becomeReadOnly = "SET default_transaction_read_only = on"

// outboxOn makes the outbox of a pool of PostgreSQL.
func outboxOn(t *testing.T, pool *sql.DB, pub core.Publisher) *core.Outbox {
	t.Helper()
	repo, err := sqloutbox.New(pool, sqloutbox.Config{Dialect: core.Postgres})
	fixture.NoError(t, err)
	fixture.NoError(t, repo.Migrate(t.Context()))
	ob, err := core.New(
		core.Config{Repository: repo, Publisher: pub, Relay: relay.Config{}, Wake: core.WakePolicy{Disable: true}},
	)
	fixture.NoError(t, err)
	return ob
}

// After a failover the address of the database leads to another server, and the old one lives on
// with the pool's connections, without writes. The relay and the program must get to the new one by
// themselves.
func TestServerBecomesReadOnly(t *testing.T) {
	t.Parallel()
	onSQL := func(t *testing.T, pool *sql.DB, cfg pgxoutbox.OpenConfig) (*core.Outbox, core.Transactor, func()) {
		t.Helper()
		t.Cleanup(func() { _ = pool.Close() })
		pool.SetMaxOpenConns(poolConns)
		pool.SetMaxIdleConns(poolConns)
		ob := outboxOn(t, pool, cfg.Publisher)
		return ob, sqltx.NewTransactor(pool, core.Postgres), func() {
			var all []*sql.Conn
			for range poolConns {
				conn, err := pool.Conn(t.Context())
				fixture.NoError(t, err)
				_, err = conn.ExecContext(t.Context(), becomeReadOnly)
				fixture.NoError(t, err)
				all = append(all, conn)
			}
			for _, conn := range all {
				fixture.NoError(t, conn.Close())
			}
		}
	}
	for name, open := range map[string]func(
		t *testing.T, dsn string, cfg pgxoutbox.OpenConfig) (*core.Outbox, core.Transactor, func()){
		"a pool of database/sql": func(
			t *testing.T, dsn string, cfg pgxoutbox.OpenConfig,
		) (*core.Outbox, core.Transactor, func()) {
			t.Helper()
			config, err := pgx.ParseConfig(dsn)
			fixture.NoError(t, err)
			return onSQL(t, stdlib.OpenDB(*config), cfg)
		},
		"a pool of sqltx.Connector": func(
			t *testing.T, dsn string, cfg pgxoutbox.OpenConfig,
		) (*core.Outbox, core.Transactor, func()) {
			t.Helper()
			pool, err := sqltx.Open("pgx", dsn, core.Postgres)
			fixture.NoError(t, err)
			return onSQL(t, pool, cfg)
		},
		"a pool of pgx": func(
			t *testing.T, dsn string, cfg pgxoutbox.OpenConfig,
		) (*core.Outbox, core.Transactor, func()) {
			t.Helper()
			config, err := pgxpool.ParseConfig(dsn)
			fixture.NoError(t, err)
			config.MaxConns = poolConns
			pool, ob, err := pgxoutbox.OpenPool(t.Context(), config, cfg)
			fixture.NoError(t, err)
			t.Cleanup(pool.Close)
			return ob, pgxoutbox.Transactor(pool), func() {
				var all []*pgxpool.Conn
				for range poolConns {
					conn, err := pool.Acquire(t.Context())
					fixture.NoError(t, err)
					_, err = conn.Exec(t.Context(), becomeReadOnly)
					fixture.NoError(t, err)
					all = append(all, conn)
				}
				for _, conn := range all {
					conn.Release()
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := testdb.Postgres(t)
			var pub outboxtest.Publisher
			ob, tx, failOver := open(t, db.DSN, pgxoutbox.OpenConfig{
				Publisher: &pub, AutoCreate: true, Wake: core.WakePolicy{Disable: true},
			})
			publish := func() error {
				return tx.RunInTx(t.Context(), func(ctx context.Context, tx core.Tx) error {
					_, err := ob.Publish(ctx, tx, core.Event{Type: "a"})
					return err
				})
			}
			fixture.NoError(t, publish())
			fixture.RunRelay(t, ob)
			fixture.Await(t, "the first event is published", func() bool { return len(pub.Accepted()) == 1 })
			failOver()
			fixture.Await(t, "the program writes again", func() bool { return publish() == nil })
			fixture.Await(t, "the relay publishes again", func() bool { return len(pub.Accepted()) == 2 })
		})
	}
}

// A server without writes is not ready, whatever else it answers.
func TestServerThatIsReadOnlyIsNotReady(t *testing.T) {
	t.Parallel()
	db := testdb.Postgres(t)
	pool, err := sqltx.Open("pgx", db.DSN, core.Postgres)
	fixture.NoError(t, err)
	defer func() { _ = pool.Close() }()
	pool.SetMaxOpenConns(1)
	ob := outboxOn(t, pool, nil)
	fixture.Must(t, ob.Health(t.Context()).Ready, "not ready")
	fixture.MustExec(t, pool, becomeReadOnly)
	err = ob.Repository().Check(t.Context())
	fixture.Check(t, err != nil && strings.Contains(err.Error(), "database is read-only"), "Check: %v", err)
}
