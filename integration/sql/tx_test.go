package sql_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// sqlTx is a transaction in two forms: that of the test's business code and that of Publish.
type sqlTx struct {
	business interface {
		sqltx.Conn
		QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
		PrepareContext(ctx context.Context, query string) (*sql.Stmt, error)
		Commit() error
		Rollback() error
	}
	core.Tx

	mu       sync.Mutex
	outcomes map[int]core.Outcome
}

// write stores row n of table "written" and notes its outcome.
func (x *sqlTx) write(t *testing.T, n int) {
	t.Helper()
	if _, err := x.Exec(t.Context(), fmt.Sprintf("INSERT INTO written (n) VALUES (%d)", n)); err != nil {
		t.Fatal(err)
	}
	x.follow(n)
}

func (x *sqlTx) follow(n int) {
	x.OnOutcome(func(o core.Outcome) {
		x.mu.Lock()
		defer x.mu.Unlock()
		if _, twice := x.outcomes[n]; twice {
			o = 99
		}
		x.outcomes[n] = o
	})
}

func (x *sqlTx) want(t *testing.T, n int, want core.Outcome) {
	t.Helper()
	x.mu.Lock()
	defer x.mu.Unlock()
	if got, ok := x.outcomes[n]; !ok || got != want {
		t.Fatalf("row %d: heard %v (%v), want %v", n, got, ok, want)
	}
}

func (x *sqlTx) run(t *testing.T, prepared bool, query string) {
	t.Helper()
	if !prepared {
		if _, err := x.business.ExecContext(t.Context(), query); err != nil {
			t.Fatal(err)
		}
		return
	}
	stmt, err := x.business.PrepareContext(t.Context(), query)
	fixture.NoError(t, err)
	defer stmt.Close()
	if _, err := stmt.ExecContext(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// sqlPool is a database opened in one of the ways in which transactions can be tracked.
type sqlPool struct {
	*sql.DB
	kind  string // connector or begin
	begin func(ctx context.Context) (*sqlTx, error)
}

func eachSQLPool(t *testing.T, fn func(t *testing.T, db testdb.DB, pool sqlPool)) {
	t.Helper()
	testdb.Every(t, func(t *testing.T, db testdb.DB) {
		plain := db.Open(t)
		fixture.MustExec(t, plain, "CREATE TABLE written (n INTEGER PRIMARY KEY)"+fixture.Engine(db))
		tracked := sql.OpenDB(sqltx.Connector(db.Connector(t), db.Dialect))
		t.Cleanup(func() { _ = tracked.Close() })
		for _, pool := range []sqlPool{
			{DB: tracked, kind: "connector", begin: func(ctx context.Context) (*sqlTx, error) {
				tx, err := tracked.BeginTx(ctx, nil)
				if err != nil {
					return nil, err
				}
				ob, err := sqltx.TxOf(ctx, tx)
				return &sqlTx{business: tx, Tx: ob, outcomes: map[int]core.Outcome{}}, err
			}},
			{DB: plain, kind: "begin", begin: func(ctx context.Context) (*sqlTx, error) {
				tx, err := sqltx.Begin(ctx, plain, nil, db.Dialect)
				return &sqlTx{business: tx, Tx: tx, outcomes: map[int]core.Outcome{}}, err
			}},
		} {
			t.Run(pool.kind, func(t *testing.T) {
				fixture.MustExec(t, plain, "DELETE FROM written")
				fn(t, db, pool)
			})
		}
	})
}

func (p sqlPool) mustBegin(t *testing.T, ctx context.Context) *sqlTx {
	t.Helper()
	tx, err := p.begin(ctx)
	fixture.NoError(t, err)
	t.Cleanup(func() { _ = tx.business.Rollback() })
	return tx
}

func wantRows(t *testing.T, db *sql.DB, want ...int) {
	t.Helper()
	if got := rowsOf(t, db); fmt.Sprint(got) != fmt.Sprint(append([]int{}, want...)) {
		t.Fatalf("rows %v, want %v", got, want)
	}
}

func rowsOf(t *testing.T, db *sql.DB) []int {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "SELECT n FROM written ORDER BY n")
	fixture.NoError(t, err)
	defer rows.Close()
	got := []int{}
	for rows.Next() {
		var n int
		fixture.NoError(t, rows.Scan(&n))
		got = append(got, n)
	}
	fixture.NoError(t, rows.Err())
	return got
}

func TestSQLTxCommitAndRollback(t *testing.T) {
	t.Parallel()
	eachSQLPool(t, func(t *testing.T, db testdb.DB, pool sqlPool) {
		tx := pool.mustBegin(t, t.Context())
		if !tx.Tracked() || tx.Dialect() != db.Dialect {
			t.Fatalf("tracked %v, dialect %q", tx.Tracked(), tx.Dialect())
		}
		tx.write(t, 1)
		fixture.NoError(t, tx.business.Commit())
		tx.want(t, 1, core.Committed)

		tx = pool.mustBegin(t, t.Context())
		tx.write(t, 2)
		fixture.NoError(t, tx.business.Rollback())
		tx.want(t, 2, core.RolledBack)
		wantRows(t, pool.DB, 1)
	})
}

func TestSQLTxSavepoints(t *testing.T) {
	t.Parallel()
	eachSQLPool(t, func(t *testing.T, db testdb.DB, pool sqlPool) {
		for _, prepared := range []bool{false, true} {
			tx := pool.mustBegin(t, t.Context())
			// MySQL refuses SAVEPOINT as a prepared statement, and the transaction goes on.
			if prepared && db.Name == "mysql" {
				tx.write(t, 21)
				if stmt, err := tx.business.PrepareContext(t.Context(), "SAVEPOINT a"); err == nil {
					defer stmt.Close()
					t.Error("SAVEPOINT was prepared")
				} else if !strings.Contains(err.Error(), "1295") {
					t.Errorf("PrepareContext returned %v", err)
				}
				tx.write(t, 23)
				fixture.NoError(t, tx.business.Commit())
				continue
			}
			base := 10
			if prepared {
				base = 20
			}
			tx.write(t, base+1)
			tx.run(t, prepared, "SAVEPOINT a")
			tx.write(t, base+2)
			tx.run(t, prepared, "ROLLBACK TO SAVEPOINT a")
			tx.write(t, base+3)
			tx.run(t, prepared, "RELEASE SAVEPOINT a")
			fixture.NoError(t, tx.business.Commit())
			tx.want(t, base+1, core.Committed)
			tx.want(t, base+2, core.RolledBack)
			tx.want(t, base+3, core.Committed)
		}
		wantRows(t, pool.DB, 11, 13, 21, 23)
	})
}

func TestSQLTxContextEnds(t *testing.T) {
	t.Parallel()
	eachSQLPool(t, func(t *testing.T, db testdb.DB, pool sqlPool) {
		ctx, cancel := context.WithCancel(t.Context())
		tx := pool.mustBegin(t, ctx)
		tx.write(t, 1)
		ended := make(chan struct{})
		tx.OnOutcome(func(core.Outcome) { close(ended) })
		cancel()
		if err := tx.business.Commit(); err == nil {
			t.Fatal("Commit after the end of the context returned nil")
		}
		<-ended
		tx.want(t, 1, core.RolledBack)
		wantRows(t, pool.DB)
	})
}

func TestSQLTxOnPoolWithoutConnector(t *testing.T) {
	t.Parallel()
	testdb.Every(t, func(t *testing.T, db testdb.DB) {
		pool := db.Open(t)
		fixture.MustExec(t, pool, "CREATE TABLE written (n INTEGER PRIMARY KEY)"+fixture.Engine(db))
		tx, err := pool.BeginTx(t.Context(), nil)
		fixture.NoError(t, err)
		defer tx.Rollback()
		ob, err := sqltx.TxOf(t.Context(), tx)
		fixture.NoError(t, err)
		if ob.Tracked() || ob.Dialect() != db.Dialect || ob.Err() != nil {
			t.Fatalf("tracked %v, dialect %q, err %v", ob.Tracked(), ob.Dialect(), ob.Err())
		}
		if _, err := ob.Exec(t.Context(), "INSERT INTO written (n) VALUES (1)"); err != nil {
			t.Fatalf("the probe broke the transaction: %v", err)
		}
		fixture.NoError(t, tx.Commit())
		wantRows(t, pool, 1)
		conn, err := pool.Conn(t.Context())
		fixture.NoError(t, err)
		defer conn.Close()
		for _, notTx := range []sqltx.Conn{pool, conn, tx} {
			if _, err := sqltx.TxOf(t.Context(), notTx); !errors.Is(err, core.ErrNoTransaction) {
				t.Errorf("%T: %v, want ErrNoTransaction", notTx, err)
			}
		}
	})
}

func TestSQLTxDialectIsToldFromTheDriver(t *testing.T) {
	t.Parallel()
	testdb.Every(t, func(t *testing.T, db testdb.DB) {
		pool := sql.OpenDB(sqltx.Connector(db.Connector(t), ""))
		defer pool.Close()
		tx, err := sqltx.Begin(t.Context(), pool, nil, "")
		fixture.NoError(t, err)
		defer tx.Rollback()
		if tx.Dialect() != db.Dialect {
			t.Fatalf("dialect %q, want %q", tx.Dialect(), db.Dialect)
		}
		conn, err := pool.Conn(t.Context())
		fixture.NoError(t, err)
		defer conn.Close()
		fixture.NoError(t, conn.Raw(func(dc any) error {
			if raw := fmt.Sprintf("%T", dc.(interface{ Raw() driver.Conn }).Raw()); strings.Contains(raw, "sqloutbox") {
				t.Errorf("Raw is a %s", raw)
			}
			return nil
		}))
	})
}

func TestSQLTxTransactor(t *testing.T) {
	t.Parallel()
	eachSQLPool(t, func(t *testing.T, db testdb.DB, pool sqlPool) {
		r := sqltx.NewTransactor(pool.DB, "")
		x := &sqlTx{outcomes: map[int]core.Outcome{}}
		put := func(n int, err error) func(context.Context, core.Tx) error {
			return func(_ context.Context, tx core.Tx) error {
				x.Tx = tx
				x.write(t, n)
				return err
			}
		}
		noStock := errors.New("no stock")
		fixture.NoError(t, r.RunInTx(t.Context(), func(ctx context.Context, tx core.Tx) error {
			if err := put(1, nil)(ctx, tx); err != nil {
				return err
			}
			if err := r.RunInTx(ctx, put(2, noStock)); !errors.Is(err, noStock) {
				return fmt.Errorf("nested: %w", err)
			}
			return r.RunInTx(ctx, put(3, nil))
		}))
		x.want(t, 1, core.Committed)
		x.want(t, 2, core.RolledBack)
		x.want(t, 3, core.Committed)
		wantRows(t, pool.DB, 1, 3)
		if err := r.RunInTx(t.Context(), put(4, noStock)); !errors.Is(err, noStock) {
			t.Fatal(err)
		}
		x.want(t, 4, core.RolledBack)
		wantRows(t, pool.DB, 1, 3)
	})
}
