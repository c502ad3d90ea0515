package sql_test

import (
	"context"
	"errors"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/adapters"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// COMMIT checks a deferred constraint. The server's refusal is an answer, and the connection must
// be usable for the next transaction.
func TestSQLTxCommitRefused(t *testing.T) {
	t.Parallel()
	eachSQLPool(t, func(t *testing.T, db testdb.DB, pool sqlPool) {
		if db.Dialect == core.MySQL {
			t.Log("no deferred constraints")
			return
		}
		pool.SetMaxOpenConns(1)
		defer pool.SetMaxOpenConns(0)
		pragma := func() {
			if db.Dialect == core.SQLite {
				fixture.MustExec(t, pool.DB, "PRAGMA foreign_keys = ON")
			}
		}
		pragma()
		fixture.MustExec(t, pool.DB, "CREATE TABLE child (n INTEGER REFERENCES written (n) DEFERRABLE INITIALLY "+
			"DEFERRED)")
		defer fixture.MustExec(t, pool.DB, "DROP TABLE child")
		tx := pool.mustBegin(t, t.Context())
		tx.write(t, 1)
		tx.run(t, false, "INSERT INTO child (n) VALUES (7)")
		err := tx.business.Commit()
		fixture.Must(t, err != nil && !errors.Is(err, core.ErrCommitUnknown), "Commit: %v, want a refusal", err)
		tx.want(t, 1, core.RolledBack)
		wantRows(t, pool.DB)
		next := pool.mustBegin(t, t.Context())
		next.write(t, 2)
		fixture.NoError(t, next.business.Commit())
		next.want(t, 2, core.Committed)
		wantRows(t, pool.DB, 2)
	})
}

// InnoDB rolls the whole transaction of a deadlock victim back. An application that ignores the
// error goes on in autocommit, and COMMIT returns nil.
func TestSQLTxDeadlockVictimIgnored(t *testing.T) {
	t.Parallel()
	eachSQLPool(t, func(t *testing.T, db testdb.DB, pool sqlPool) {
		if db.Dialect == core.SQLite {
			t.Log("one writer: no deadlocks")
			return
		}
		victim := pool.mustBegin(t, t.Context())
		victim.write(t, 1)
		err := adapters.BecomeVictim(t.Context(), t, db, func(ctx context.Context, query string) error {
			_, err := victim.business.ExecContext(ctx, query)
			return err
		})
		fixture.Must(t, err != nil, "no deadlock")
		if db.Dialect == core.MySQL && !errors.Is(victim.Err(), core.ErrTxAborted) {
			t.Fatalf("Err: %v, want ErrTxAborted", victim.Err())
		}
		err = victim.business.Commit()
		t.Logf("Commit of the victim: %v", err)
		fixture.Must(t, victim.outcomes[1] != core.Committed, "a ghost: the row was reported as committed")
		wantRows(t, pool.DB)
	})
}

// The same holds when the victim learns of the deadlock while it reads rows.
func TestSQLTxDeadlockVictimWhileReading(t *testing.T) {
	t.Parallel()
	eachSQLPool(t, func(t *testing.T, db testdb.DB, pool sqlPool) {
		if db.Dialect != core.MySQL {
			t.Log("other databases refuse COMMIT then, or know no deadlocks")
			return
		}
		fixture.MustExec(t, pool.DB, "INSERT INTO written (n) VALUES (101), (102), (103)")
		victim, other := pool.mustBegin(t, t.Context()), pool.mustBegin(t, t.Context())
		victim.write(t, 1)
		victim.run(t, false, "UPDATE written SET n = n WHERE n = 101")
		other.run(t, false, "UPDATE written SET n = n WHERE n = 103")
		for n := 200; n < 300; n++ {
			other.write(t, n)
		}
		done := make(chan error, 1)
		go func() {
			rows, err := victim.business.QueryContext(context.WithoutCancel(t.Context()), "SELECT n FROM written "+
				"WHERE n IN (102, 103) ORDER BY n FOR UPDATE")
			if err != nil {
				done <- err
				return
			}
			defer rows.Close()
			for rows.Next() {
			}
			done <- rows.Err()
		}()
		other.run(t, false, "UPDATE written SET n = n WHERE n = 101")
		if err := <-done; err == nil {
			t.Fatal("no deadlock")
		}
		if !errors.Is(victim.Err(), core.ErrTxAborted) {
			t.Fatalf("Err: %v, want ErrTxAborted", victim.Err())
		}
		_ = victim.business.Commit()
		fixture.Must(t, victim.outcomes[1] != core.Committed, "a ghost: the row was reported as committed")
	})
}

func TestSQLTxConnectionLostAtCommit(t *testing.T) {
	t.Parallel()
	eachSQLPool(t, func(t *testing.T, db testdb.DB, pool sqlPool) {
		if db.Dialect == core.SQLite {
			t.Log("no connection to lose")
			return
		}
		tx := pool.mustBegin(t, t.Context())
		tx.write(t, 1)
		adapters.Disconnect(core.ContextWithTx(t.Context(), tx.Tx), t, db)
		err := tx.business.Commit()
		fixture.Must(t, errors.Is(err, core.ErrCommitUnknown), "Commit: %v, want ErrCommitUnknown", err)
		tx.want(t, 1, core.Unknown)
		wantRows(t, pool.DB)
	})
}

// PostgreSQL answers no probe in an aborted transaction.
func TestSQLTxOfAbortedTransaction(t *testing.T) {
	t.Parallel()
	pool := testdb.Postgres(t).Open(t)
	tx, err := pool.BeginTx(t.Context(), nil)
	fixture.NoError(t, err)
	defer tx.Rollback()
	_, _ = tx.ExecContext(t.Context(), "SELECT 1/0")
	if _, err := sqltx.TxOf(t.Context(), tx); !errors.Is(err, core.ErrTxAborted) {
		t.Fatalf("%v, want ErrTxAborted", err)
	}
}
