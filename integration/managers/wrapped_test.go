package managers_test

import (
	"database/sql"
	"database/sql/driver"
	"slices"
	"strings"
	"testing"

	"github.com/DATA-DOG/go-txdb"
	"github.com/XSAM/otelsql"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// drainRelay publishes one event at a time.
var drainRelay = relay.Config{Workers: 1}

// driverName is the name under which the driver of a database is registered.
func driverName(db testdb.DB) string {
	return map[core.Dialect]string{core.Postgres: "pgx", core.MySQL: "mysql", core.SQLite: "sqlite"}[db.Dialect]
}

// go-txdb runs a whole test in one real transaction. BEGIN, COMMIT and ROLLBACK are savepoints below
// the connector, so nothing of the test may stay.
func TestTxdb(t *testing.T) {
	t.Parallel()
	testdb.EveryServer(t, func(t *testing.T, db testdb.DB) {
		plain := db.Open(t)
		fixture.MustExec(t, plain, "CREATE TABLE things (name VARCHAR(20) PRIMARY KEY)")
		fixture.NewRepository(t, plain, sqloutbox.Config{Dialect: db.Dialect})

		pool := sql.OpenDB(sqltx.Connector(txdb.New(driverName(db), db.DSN), db.Dialect))
		ob, types := drained(t, pool, db.Dialect)
		place := func(name string, fail error) error {
			tx, err := pool.BeginTx(t.Context(), nil)
			fixture.NoError(t, err)
			defer tx.Rollback()
			_, err = tx.ExecContext(t.Context(), "INSERT INTO things (name) VALUES ('"+name+"')")
			fixture.NoError(t, err)
			otx, err := sqltx.TxOf(t.Context(), tx)
			fixture.NoError(t, err)
			_, err = ob.Publish(t.Context(), otx, fixture.Event(name))
			fixture.NoError(t, err)
			if fail != nil {
				return fail
			}
			return tx.Commit()
		}
		fixture.NoError(t, place("first", nil))
		fixture.WantError(t, place("ghost", fixture.ErrNoStock), fixture.ErrNoStock)
		fixture.NoError(t, place("second", nil))
		fixture.NoError(t, ob.Drain(t.Context()))
		fixture.SameSet(t, "published", *types, []string{"first", "second"})
		if n := fixture.Count(t, pool, "SELECT COUNT(*) FROM things"); n != 2 {
			t.Errorf("%d rows in the transaction of the test, want 2", n)
		}
		fixture.NoError(t, pool.Close())
		for _, table := range []string{"things", "outbox_event"} {
			if n := fixture.Count(t, plain, "SELECT COUNT(*) FROM "+table); n != 0 {
				t.Errorf("%d rows stay in %s after the test", n, table)
			}
		}
	})
}

// otelsql works inside of the connector and around it: transactions are tracked, spans are made for
// COMMIT and ROLLBACK, and the driver's own connection is found.
func TestOtelsql(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		for _, inside := range []bool{true, false} {
			spans := tracetest.NewSpanRecorder()
			traces := otelsql.WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)))
			var pool *sql.DB
			if inside {
				name, err := otelsql.Register(driverName(db), traces)
				fixture.NoError(t, err)
				pool, err = sqltx.Open(name, db.DSN, db.Dialect)
				fixture.NoError(t, err)
			} else {
				pool = otelsql.OpenDB(sqltx.Connector(db.Connector(t), db.Dialect), traces)
			}
			fixture.NewRepository(t, pool, sqloutbox.Config{Dialect: db.Dialect})
			ob, types := drained(t, pool, db.Dialect)
			for _, commit := range []bool{true, false} {
				tx, err := pool.BeginTx(t.Context(), nil)
				fixture.NoError(t, err)
				otx, err := sqltx.TxOf(t.Context(), tx)
				fixture.NoError(t, err)
				fixture.Check(t, otx.Tracked(), "inside %t: not tracked", inside)
				var got core.Outcome
				otx.OnOutcome(func(o core.Outcome) { got = o })
				_, err = ob.Publish(t.Context(), otx, fixture.Event("e"))
				fixture.NoError(t, err)
				want, end := core.Committed, tx.Commit
				if !commit {
					want, end = core.RolledBack, tx.Rollback
				}
				fixture.NoError(t, end())
				fixture.Check(t, got == want, "inside %t: the outcome is %v, want %v", inside, got, want)
			}
			fixture.NoError(t, ob.Drain(t.Context()))
			fixture.SameSet(t, "published", *types, []string{"e"})
			var ended []string
			for _, s := range spans.Ended() {
				ended = append(ended, s.Name())
			}
			for _, name := range []string{"sql.tx.commit", "sql.tx.rollback"} {
				fixture.Check(t, slices.Contains(ended, name), "inside %t: no span %s", inside, name)
			}
			conn, err := pool.Conn(t.Context())
			fixture.NoError(t, err)
			fixture.NoError(t, conn.Raw(func(dc any) error {
				found, err := sqltx.DriverConn[driver.Conn](dc)
				typ := typeOf(found)
				own := !strings.Contains(typ, "otelsql") && !strings.Contains(typ, "sqltx")
				fixture.Check(t, own, "found a %s", typ)
				return err
			}))
			fixture.NoError(t, conn.Close())
			fixture.MustExec(t, pool, "DELETE FROM outbox_event")
			fixture.NoError(t, pool.Close())
		}
	})
}
