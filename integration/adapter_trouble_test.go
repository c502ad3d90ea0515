package integration

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/integration/internal/commitfault"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// withTrouble opens an adapter on a database and gives it the ways into trouble that are the same for every ORM: they need nothing but
// Exec of the adapter and the transaction in the context.
func withTrouble(t *testing.T, db testdb.DB, open func(testdb.DB) outboxtest.Adapter) outboxtest.Adapter {
	t.Helper()
	direct := db // connections of the test itself, which nothing is to happen to
	var faults commitfault.Injector
	db.Wrap = faults.Connector
	a := open(db)
	if a.RefuseCommit == nil {
		a.RefuseCommit = refuseCommit(t, direct)
	}
	if a.LoseCommit == nil {
		a.LoseCommit = loseCommit(&faults)
	}
	if a.Deadlock == nil && db.Dialect != core.SQLite { // which has one writer
		a.Deadlock = func(ctx context.Context) error { return becomeVictim(ctx, t, direct, a.Exec) }
	}
	if a.Booked == nil {
		a.Booked = booked(t, direct)
	}
	if a.Disconnect == nil && db.Dialect != core.SQLite { // which has no server
		a.Disconnect = disconnect(direct.Open(t), direct.Dialect)
	}
	return a
}

// booked creates a table of the application and returns a function that reads it.
func booked(t *testing.T, db testdb.DB) func(context.Context) ([]int, error) {
	t.Helper()
	pool := db.Open(t)
	mustExec(t, pool, "CREATE TABLE outboxtest_booking (id INTEGER PRIMARY KEY)"+engine(db))
	return func(ctx context.Context) ([]int, error) {
		rows, err := pool.QueryContext(ctx, "SELECT id FROM outboxtest_booking")
		if err != nil {
			return nil, err
		}
		defer rows.Close()
		var ids []int
		for rows.Next() {
			var id int
			if err := rows.Scan(&id); err != nil {
				return nil, err
			}
			ids = append(ids, id)
		}
		return ids, rows.Err()
	}
}

// refuseCommit returns a function that violates a deferred constraint; MariaDB has none.
func refuseCommit(t *testing.T, db testdb.DB) func(context.Context) error {
	t.Helper()
	if db.Dialect == core.MySQL {
		return nil
	}
	pool := db.Open(t)
	for _, query := range []string{
		"CREATE TABLE refuse_parent (id INTEGER PRIMARY KEY)",
		"CREATE TABLE refuse_child (id INTEGER REFERENCES refuse_parent (id) DEFERRABLE INITIALLY DEFERRED)",
	} {
		if _, err := pool.ExecContext(t.Context(), query); err != nil {
			t.Fatal(err)
		}
	}
	return func(ctx context.Context) error {
		tx, ok := core.TxFromContext(ctx)
		if !ok {
			return core.ErrNoTransaction
		}
		_, err := tx.Exec(ctx, "INSERT INTO refuse_child (id) VALUES (1)")
		return err
	}
}

func loseCommit(faults *commitfault.Injector) func(context.Context, bool) error {
	return func(ctx context.Context, committed bool) error {
		tx, ok := core.TxFromContext(ctx)
		if !ok {
			return core.ErrNoTransaction
		}
		query := commitfault.NotCommitted
		if committed {
			query = commitfault.Committed
		}
		before := faults.Armed()
		if _, err := tx.Exec(ctx, query); err != nil {
			return err
		}
		if faults.Armed() == before {
			return fmt.Errorf("the adapter has a connector of its own: %w", errors.ErrUnsupported)
		}
		return nil
	}
}

// becomeVictim makes the transaction of ctx the victim of a deadlock with a transaction of its own, and returns what the last of its statements
// returned.
func becomeVictim(ctx context.Context, t *testing.T, db testdb.DB, run func(context.Context, string) error) error {
	t.Helper()
	other := newRival(t, db)
	defer other.close()
	if db.Dialect == core.Postgres { // the victim is who looks for deadlocks first, which is once in each wait
		if err := run(ctx, "SET LOCAL deadlock_timeout = '10ms'"); err != nil {
			return fmt.Errorf("prepare a deadlock: %w", err)
		}
	}
	if err := run(ctx, "UPDATE rival SET n = n + 1 WHERE id = 1"); err != nil {
		t.Fatalf("prepare a deadlock: %v", err)
	}
	blocked := make(chan error, 1)
	rivalCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	go func() {
		_, err := other.tx.ExecContext(rivalCtx, "UPDATE rival SET n = n + 1 WHERE id = 1")
		blocked <- err
	}()
	if db.Dialect == core.Postgres { // InnoDB chooses the lighter one, whoever waits first
		other.waitUntilBlocked()
	}
	err := run(ctx, "UPDATE rival SET n = n + 1 WHERE id = 2")
	if rivalErr := <-blocked; rivalErr != nil {
		t.Fatalf("the other transaction became the victim: %v", rivalErr)
	}
	return err
}

// rival is a transaction that holds row 2 of table rival and waits for row 1.
type rival struct {
	*testing.T
	pool *sql.DB
	tx   *sql.Tx
	pid  int64 // on PostgreSQL
}

func newRival(t *testing.T, db testdb.DB) *rival {
	t.Helper()
	r := &rival{T: t, pool: db.Open(t)}
	mustExec(t, r.pool, "DROP TABLE IF EXISTS rival")
	mustExec(t, r.pool, "CREATE TABLE rival (id INTEGER PRIMARY KEY, n INTEGER)"+engine(db))
	mustExec(t, r.pool, "INSERT INTO rival (id, n) VALUES (1, 0), (2, 0)")
	var err error
	if r.tx, err = r.pool.BeginTx(context.WithoutCancel(t.Context()), nil); err != nil {
		t.Fatal(err)
	}
	if db.Dialect == core.Postgres {
		r.exec("SET LOCAL deadlock_timeout = '10min'")
		if err := r.tx.QueryRowContext(t.Context(), "SELECT pg_backend_pid()").Scan(&r.pid); err != nil {
			t.Fatal(err)
		}
	}
	r.exec("UPDATE rival SET n = n + 1 WHERE id = 2")
	for n := range 100 { // the lighter transaction is the victim on InnoDB
		r.exec(fmt.Sprintf("INSERT INTO rival (id, n) VALUES (%d, 0)", n+3))
	}
	return r
}

func (r *rival) exec(query string) {
	r.Helper()
	if _, err := r.tx.ExecContext(r.Context(), query); err != nil {
		r.Fatalf("%s: %v", query, err)
	}
}

// waitUntilBlocked returns when a statement of r waits for a lock on PostgreSQL.
func (r *rival) waitUntilBlocked() {
	r.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		var n int
		err := r.pool.QueryRowContext(r.Context(), "SELECT COUNT(*) FROM pg_stat_activity WHERE pid = $1 AND wait_event_type = 'Lock'", r.pid).Scan(&n)
		if err != nil {
			r.Fatal(err)
		}
		if n == 1 {
			return
		}
	}
	r.Fatal("the other transaction does not wait")
}

func (r *rival) close() { _ = r.tx.Rollback() }

// disconnect returns a function that has the server end the connection of the transaction in the context.
func disconnect(admin *sql.DB, d core.Dialect) func(context.Context) error {
	id, kill := "SELECT pg_backend_pid()", "SELECT pg_terminate_backend(%d, 10000)" // and waits until it is gone
	if d == core.MySQL {
		id, kill = "SELECT CONNECTION_ID()", "KILL %d"
	}
	return func(ctx context.Context) error {
		tx, ok := core.TxFromContext(ctx)
		if !ok {
			return core.ErrNoTransaction
		}
		rows, err := tx.Query(ctx, id)
		if err != nil {
			return err
		}
		defer rows.Close()
		var n int64
		for rows.Next() {
			if err := rows.Scan(&n); err != nil {
				return err
			}
		}
		if err := rows.Err(); err != nil {
			return err
		}
		if err := rows.Close(); err != nil {
			return err
		}
		_, err = admin.ExecContext(ctx, fmt.Sprintf(kill, n))
		return err
	}
}
