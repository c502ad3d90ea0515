package integration

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/uptrace/bun/driver/pgdriver"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/once/sqlonce"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/inbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// eachSwallower opens every ORM on every database, on pools without the Connector, and database/sql over pgdriver, which says nothing when
// PostgreSQL answers COMMIT by ROLLBACK.
func eachSwallower(t *testing.T, fn func(t *testing.T, db testdb.DB, a outboxtest.Adapter)) {
	t.Helper()
	for name, open := range ormWays {
		t.Run(name, func(t *testing.T) {
			testdb.Each(t, func(t *testing.T, db testdb.DB) { fn(t, db, open(t, db)) })
		})
	}
	t.Run("sql with pgdriver", func(t *testing.T) {
		db := testdb.Postgres(t)
		pool := sql.OpenDB(pgdriver.NewConnector(pgdriver.WithDSN(db.DSN), pgdriver.WithInsecure(true)))
		t.Cleanup(func() { _ = pool.Close() })
		fn(t, db, sqlAdapter(t, db, pool, sqloutbox.NewTransactor(pool, core.Postgres), core.Config{}))
	})
	t.Run("gorm without the plugin", func(t *testing.T) {
		testdb.Each(t, func(t *testing.T, db testdb.DB) {
			fn(t, db, gormAdapter(t, db, gormWay{noPlugin: true, prepare: true}, core.Config{}))
		})
	})
}

// swallow writes and ignores that the second row violates a constraint.
func swallow(ctx context.Context, a outboxtest.Adapter) error {
	if err := a.Exec(ctx, "INSERT INTO effect (n) VALUES (1)"); err != nil {
		return err
	}
	_ = a.Exec(ctx, "INSERT INTO effect (n) VALUES (1)")
	return nil
}

func countEffects(t *testing.T, pool *sql.DB) (n int) {
	t.Helper()
	noError(t, pool.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM effect").Scan(&n))
	return n
}

// A handler that swallows a violated constraint: the message is acknowledged only if what it did is there. On PostgreSQL nothing is, and the
// message comes again.
func TestInboxDoesNotAckWhatWasNotCommitted(t *testing.T) {
	eachSwallower(t, func(t *testing.T, db testdb.DB, a outboxtest.Adapter) {
		w := newInboxWorld(t, db, inboxORM{transactor: a.Transactor, exec: a.Exec}, func(c *inbox.Config) { c.Handler = func(*message.Message) string { return "handler" } })
		mustExec(t, w.pool, "CREATE TABLE effect (n INTEGER PRIMARY KEY)"+engine(db))
		handle := w.in.Middleware(func(msg *message.Message) ([]*message.Message, error) { return nil, swallow(msg.Context(), a) })
		_, err := handle(inboxMessage("e"))
		if db.Dialect != core.Postgres {
			noError(t, err)
			if n := countEffects(t, w.pool); n != 1 {
				t.Errorf("%d effects, want 1", n)
			}
			return
		}
		if !errors.Is(err, core.ErrTxAborted) {
			t.Errorf("the message was answered with %v, want an error wrapping ErrTxAborted", err)
		}
		if n := countEffects(t, w.pool); n != 0 {
			t.Errorf("%d effects of a transaction that was rolled back", n)
		}
		handle = w.in.Middleware(func(msg *message.Message) ([]*message.Message, error) {
			return nil, a.Exec(msg.Context(), "INSERT INTO effect (n) VALUES (1)")
		})
		if _, err = handle(inboxMessage("e")); err != nil {
			t.Errorf("the message came again: %v", err)
		}
		if n := countEffects(t, w.pool); n != 1 {
			t.Errorf("%d effects, want 1", n)
		}
	})
}

// The same for work that is run once.
func TestOnceDoesNotKeepWhatWasNotCommitted(t *testing.T) {
	eachSwallower(t, func(t *testing.T, db testdb.DB, a outboxtest.Adapter) {
		pool := db.Open(t)
		runner, err := once.New(once.Config{Store: newOnceStore(t, pool, sqlonce.Config{Dialect: db.Dialect})})
		noError(t, err)
		mustExec(t, pool, "CREATE TABLE effect (n INTEGER PRIMARY KEY)"+engine(db))
		key := once.Key{Scope: "test", ID: "k"}
		run := func(fn func(ctx context.Context) error) (bool, error) {
			_, replayed, err := runner.RunInTx(t.Context(), a.Transactor, key, once.Fingerprint{}, func(ctx context.Context, _ core.Tx) (once.Result, error) {
				return once.Result{Data: []byte("done")}, fn(ctx)
			})
			return replayed, err
		}
		_, err = run(func(ctx context.Context) error { return swallow(ctx, a) })
		if db.Dialect == core.Postgres {
			if err == nil || countEffects(t, pool) != 0 {
				t.Fatalf("RunInTx: %v, %d effects", err, countEffects(t, pool))
			}
			_, err = run(func(ctx context.Context) error { return a.Exec(ctx, "INSERT INTO effect (n) VALUES (1)") })
		}
		noError(t, err)
		replayed, err := run(func(context.Context) error { return errors.New("it ran again") })
		if err != nil || !replayed || countEffects(t, pool) != 1 {
			t.Errorf("replayed %t, %v, %d effects", replayed, err, countEffects(t, pool))
		}
	})
}
