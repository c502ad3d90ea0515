package sqltx_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

// execOf returns the function with which a hook of an ORM executes a statement.
func execOf(conn sqltx.Conn) func(context.Context, string) error {
	return func(ctx context.Context, query string) error {
		_, err := conn.ExecContext(ctx, query)
		return err
	}
}

func TestVisitFindsTheTransaction(t *testing.T) {
	d := newFake()
	tx, _ := beginTracked(t, trackedPool(t, d, core.MySQL))
	var h heard
	var kept *sqltx.VisitedTx
	must(t, sqltx.Visit(t.Context(), execOf(tx), func(v *sqltx.VisitedTx) error {
		if !v.Tracked() || v.Dialect() != core.MySQL || v.Err() != nil {
			t.Errorf("tracked %v, dialect %s, %v", v.Tracked(), v.Dialect(), v.Err())
		}
		if _, err := v.Exec(t.Context(), "INSERT", 1, "a"); err != nil {
			return err
		}
		rows, err := v.Query(t.Context(), "SELECT", upper("x"))
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			t.Error("there are no rows")
		}
		h.on(v)
		kept = v
		return rows.Err()
	}))
	refused(t, errOf(kept.Exec(t.Context(), "LATER")), "a VisitedTx is of use after its visit")
	must(t, tx.Commit())
	h.want(t, core.Committed)
	if want := []string{"BEGIN", "INSERT", "SELECT", "COMMIT"}; !slices.Equal(d.statements(), want) {
		t.Fatalf("the driver was asked %q, want %q", d.statements(), want)
	}
}

func TestVisitWithoutTransaction(t *testing.T) {
	never := func(*sqltx.VisitedTx) error { t.Error("fn was run"); return nil }
	d := newFake()
	pool := trackedPool(t, d, core.SQLite)
	wantIs(t, sqltx.Visit(t.Context(), execOf(pool), never), core.ErrNoTransaction)
	tx, _ := beginTracked(t, pool)
	must(t, tx.Rollback())
	wantIs(t, sqltx.Visit(t.Context(), execOf(tx), never), core.ErrNoTransaction)
	wantIs(t, sqltx.Visit(t.Context(), execOf(d.open(t, d)), never), core.ErrUntracked)
}

func TestVisitReturnsTheErrorOfItsFunction(t *testing.T) {
	d := newFake()
	tx, own := beginTracked(t, trackedPool(t, d, core.SQLite))
	reason := errors.New("reason")
	wantIs(t, sqltx.Visit(t.Context(), execOf(tx), func(*sqltx.VisitedTx) error { return reason }), reason)
	var h heard
	h.on(own)
	must(t, tx.Commit())
	h.want(t, core.Committed)
}

func TestRefuseCommit(t *testing.T) {
	reason := errors.New("reason")
	refuse := func(t *testing.T, tx *sql.Tx) {
		t.Helper()
		must(t, sqltx.Visit(t.Context(), execOf(tx), func(v *sqltx.VisitedTx) error {
			if v.CommitRefusal() != nil {
				t.Error("refused before")
			}
			v.RefuseCommit(reason)
			wantIs(t, v.CommitRefusal(), reason)
			return nil
		}))
	}
	exec := func(t *testing.T, tx *sql.Tx, query string) {
		t.Helper()
		_, err := tx.ExecContext(t.Context(), query)
		must(t, err)
	}
	for name, tc := range map[string]struct {
		do   func(t *testing.T, tx *sql.Tx)
		want error
		last string
	}{
		"stands": {refuse, reason, "ROLLBACK"},
		"stands, by TxOf": {func(t *testing.T, tx *sql.Tx) {
			found, err := sqltx.TxOf(t.Context(), tx)
			must(t, err)
			found.(interface{ RefuseCommit(err error) (lift func()) }).RefuseCommit(reason)
		}, reason, "ROLLBACK"},
		"goes with its savepoint": {func(t *testing.T, tx *sql.Tx) {
			exec(t, tx, "SAVEPOINT a")
			refuse(t, tx)
			exec(t, tx, "ROLLBACK TO SAVEPOINT a")
		}, nil, "COMMIT"},
		"stays when its savepoint is released": {func(t *testing.T, tx *sql.Tx) {
			exec(t, tx, "SAVEPOINT a")
			refuse(t, tx)
			exec(t, tx, "RELEASE SAVEPOINT a")
		}, reason, "ROLLBACK"},
		"stays when a later savepoint goes": {func(t *testing.T, tx *sql.Tx) {
			refuse(t, tx)
			exec(t, tx, "SAVEPOINT a")
			exec(t, tx, "ROLLBACK TO SAVEPOINT a")
		}, reason, "ROLLBACK"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newFake()
			pool := trackedPool(t, d, core.Postgres)
			tx, own := beginTracked(t, pool)
			var h heard
			h.on(own)
			tc.do(t, tx)
			err := tx.Commit()
			if tc.want == nil {
				must(t, err)
				h.want(t, core.Committed)
			} else {
				wantIs(t, err, tc.want)
				h.want(t, core.RolledBack)
			}
			if all := d.statements(); all[len(all)-1] != tc.last {
				t.Fatalf("the driver was asked %q, which does not end with %s", all, tc.last)
			}
			next, _ := beginTracked(t, pool) // the next transaction of the connection is not refused
			must(t, next.Commit())
		})
	}
}

// A driver may report no error when PostgreSQL answers COMMIT by ROLLBACK, as pgdriver does.
func TestCommitOfAnAbortedTransaction(t *testing.T) {
	refused := errors.New("the driver knows it")
	for name, tc := range map[string]struct {
		select1, commit, want error
	}{
		"aborted":                                {pgError("25P02"), nil, core.ErrTxAborted},
		"aborted, and the driver hangs up":       {pgError("25P02"), driver.ErrBadConn, core.ErrTxAborted},
		"aborted, and the driver would tell":     {pgError("25P02"), refused, core.ErrTxAborted},
		"the statement never reached the server": {nil, nil, nil},
		"no answer":                              {pgError("08006"), nil, core.ErrTxAborted},
	} {
		t.Run(name, func(t *testing.T) {
			d := newFake()
			d.fail["INSERT"] = pgError("23505")
			tx, own := beginTracked(t, trackedPool(t, d, core.Postgres))
			var h heard
			h.on(own)
			if _, err := tx.ExecContext(t.Context(), "INSERT"); err == nil {
				t.Fatal("the statement did not fail")
			}
			d.fail["SELECT 1"], d.fail["COMMIT"] = tc.select1, tc.commit
			err := tx.Commit()
			if tc.want == nil {
				must(t, err)
				h.want(t, core.Committed)
				return
			}
			wantIs(t, err, tc.want)
			h.want(t, core.RolledBack)
		})
	}
	t.Run("a statement has succeeded since", func(t *testing.T) {
		d := newFake()
		d.fail["INSERT"] = pgError("23505")
		tx, _ := beginTracked(t, trackedPool(t, d, core.Postgres))
		for _, query := range []string{"SAVEPOINT a", "INSERT", "ROLLBACK TO SAVEPOINT a"} {
			_, _ = tx.ExecContext(t.Context(), query)
		}
		must(t, tx.Commit())
		if slices.Contains(d.statements(), "SELECT 1") {
			t.Error("the database was asked though a statement had succeeded")
		}
	})
}

// A VisitedTx that is kept must not report another transaction of its connection.
func TestVisitIsOver(t *testing.T) {
	d := newFake()
	pool := trackedPool(t, d, core.Postgres)
	tx, _ := beginTracked(t, pool)
	var kept *sqltx.VisitedTx
	must(t, sqltx.Visit(t.Context(), execOf(tx), func(v *sqltx.VisitedTx) error { kept = v; return nil }))
	wantIs(t, kept.Err(), core.ErrNoTransaction)
	must(t, tx.Rollback())
	var h heard
	h.on(kept)
	h.want(t, core.Unknown)
	wantIs(t, sqltx.AfterCommit(kept, func() { t.Error("ran after the commit of another transaction") }),
		core.ErrNoTransaction)
	next, _ := beginTracked(t, pool) // on the same connection: there is no other
	h.on(kept)
	must(t, next.Commit())
	h.want(t, core.Unknown, core.Unknown)
}

// Rows that fn left open must not keep the connection, which is needed to go on.
func TestVisitClosesRows(t *testing.T) {
	d := newFake()
	tx, _ := beginTracked(t, trackedPool(t, d, core.Postgres))
	visited := make(chan error, 1)
	go func() {
		visited <- sqltx.Visit(context.Background(), execOf(tx), func(v *sqltx.VisitedTx) error {
			_, err := v.Query(context.Background(), "SELECT 1")
			return err
		})
	}()
	select {
	case err := <-visited:
		must(t, err)
	case <-time.After(time.Minute):
		t.Fatal("Visit waits for rows that nobody closes")
	}
	must(t, tx.Commit())
}
