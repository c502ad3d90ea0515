package sqltx_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

func TestBeginHearsTheOutcome(t *testing.T) {
	lost := errors.New("connection lost")
	type step = func(t *testing.T, d *fakeDriver, tx *sqltx.Tx) error
	commit := func(before func(ctx context.Context, tx *sqltx.Tx)) step {
		return func(t *testing.T, d *fakeDriver, tx *sqltx.Tx) error {
			before(t.Context(), tx)
			return tx.Commit()
		}
	}
	for name, tc := range map[string]struct {
		do   step
		want core.Outcome
		err  error
	}{
		"commit": {commit(func(context.Context, *sqltx.Tx) {}), core.Committed, nil},
		"rollback": {func(_ *testing.T, _ *fakeDriver, tx *sqltx.Tx) error {
			return tx.Rollback()
		}, core.RolledBack, nil},
		"commit fails": {func(_ *testing.T, d *fakeDriver, tx *sqltx.Tx) error {
			d.fail["COMMIT"] = lost
			return tx.Commit()
		}, core.Unknown, core.ErrCommitUnknown},
		"statements that worked": {commit(func(ctx context.Context, tx *sqltx.Tx) {
			_, _ = tx.ExecContext(ctx, "UPDATE t")
			_ = readAll(tx.QueryContext(ctx, "SELECT n FROM t"))
			_ = tx.QueryRowContext(ctx, "SELECT n FROM t").Scan(new(int))
		}), core.Committed, nil},
		"ignored error": {func(t *testing.T, d *fakeDriver, tx *sqltx.Tx) error {
			d.fail["UPDATE t"] = lost
			_, _ = tx.ExecContext(t.Context(), "UPDATE t")
			return tx.Commit()
		}, core.RolledBack, core.ErrTxAborted},
		"ignored error, and the transaction is still there": {func(t *testing.T, d *fakeDriver, tx *sqltx.Tx) error {
			d.fail["UPDATE t"], d.fail[askMySQL] = lost, inTransaction
			_, _ = tx.ExecContext(t.Context(), "UPDATE t")
			return tx.Commit()
		}, core.Committed, nil},
		"ignored error, and Vitess still has the transaction": {func(t *testing.T, d *fakeDriver, tx *sqltx.Tx) error {
			d.fail["UPDATE t"], d.fail[askVitess] = lost, nil
			_, _ = tx.ExecContext(t.Context(), "UPDATE t")
			return tx.Commit()
		}, core.Committed, nil},
		"ignored error, and Vitess has rolled back": {func(t *testing.T, d *fakeDriver, tx *sqltx.Tx) error {
			d.fail["UPDATE t"], d.fail[askVitess] = lost, nil
			d.fail["RELEASE SAVEPOINT outbox_ask"] = &mysqlError{1305, "SAVEPOINT does not exist"}
			_, _ = tx.ExecContext(t.Context(), "UPDATE t")
			return tx.Commit()
		}, core.RolledBack, core.ErrTxAborted},
		"ignored error while reading rows": {func(t *testing.T, d *fakeDriver, tx *sqltx.Tx) error {
			d.rowsFail = lost
			wantIs(t, readAll(tx.QueryContext(t.Context(), "SELECT n FROM t FOR UPDATE")), lost)
			return tx.Commit()
		}, core.RolledBack, core.ErrTxAborted},
		"ignored error of a row": {func(t *testing.T, d *fakeDriver, tx *sqltx.Tx) error {
			d.rowsFail = lost
			wantIs(t, tx.QueryRowContext(t.Context(), "SELECT n FROM t FOR UPDATE").Scan(new(int)), lost)
			return tx.Commit()
		}, core.RolledBack, core.ErrTxAborted},
		"a row that locks": {commit(func(ctx context.Context, tx *sqltx.Tx) {
			_ = tx.QueryRowContext(ctx, "SELECT n FROM t FOR UPDATE").Scan(new(int))
		}), core.Committed, nil},
		"a prepared statement": {commit(func(ctx context.Context, tx *sqltx.Tx) {
			if stmt, err := tx.PrepareContext(ctx, "UPDATE t"); err == nil {
				defer stmt.Close()
			}
		}), core.Committed, nil},
	} {
		t.Run(name, func(t *testing.T) {
			d := newFake()
			tx, err := sqltx.Begin(t.Context(), d.open(t, d), nil, core.MySQL)
			must(t, err)
			defer tx.Rollback()
			var h heard
			h.on(tx)
			wantIs(t, tc.do(t, d, tx), tc.err)
			h.want(t, tc.want)
			wantIs(t, tx.Rollback(), sql.ErrTxDone)
			h.want(t, tc.want)
		})
	}
}

func TestBeginContextEnds(t *testing.T) {
	d := newFake()
	ctx, cancel := context.WithCancel(t.Context())
	tx, err := sqltx.Begin(ctx, d.open(t, d), nil, core.Postgres)
	must(t, err)
	ended := make(chan core.Outcome, 1)
	tx.OnOutcome(func(o core.Outcome) { ended <- o })
	cancel()
	if o := <-ended; o != core.RolledBack { // without a call of Commit or Rollback
		t.Fatalf("heard %v", o)
	}
	err = tx.Commit()
	wantIs(t, err, sql.ErrTxDone)
	wantIs(t, err, context.Canceled)
	if slices.Contains(d.statements(), "COMMIT") {
		t.Fatal("COMMIT was sent")
	}
}

// database/sql rolls back when the context ends, at any moment of Follow and of Commit.
func TestFollowWhileTheContextEnds(t *testing.T) {
	d := newFake()
	db := d.open(t, d)
	for range 500 {
		ctx, cancel := context.WithCancel(t.Context())
		var ending sync.WaitGroup
		tx, err := sqltx.Follow(ctx, db, core.MySQL, func(ctx context.Context) (sqltx.TxConn, error) {
			defer ending.Go(cancel)
			return db.BeginTx(ctx, nil)
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := tx.Commit(); err != nil && !errors.Is(err, sql.ErrTxDone) && !errors.Is(err, context.Canceled) {
			t.Errorf("Commit: %v", err)
		}
		ending.Wait()
	}
}

func TestBeginLeavesTheTrackingToTheConnector(t *testing.T) {
	d := newFake()
	db := trackedPool(t, d, core.MySQL)
	tx, err := sqltx.Begin(t.Context(), db, nil, core.MySQL)
	must(t, err)
	var h heard
	h.on(tx)
	stmt, err := tx.PrepareContext(t.Context(), "UPDATE t") // seen by the connection
	must(t, err)
	defer stmt.Close()
	_, err = stmt.Exec()
	must(t, err)
	must(t, tx.Commit())
	h.want(t, core.Committed)
}

func TestBeginRefusesWhatItCannotUse(t *testing.T) {
	d := newFake()
	refused(t, errOf(sqltx.Begin(t.Context(), nil, nil, core.Postgres)), "a nil pool was accepted")
	if _, err := sqltx.Begin(t.Context(), d.open(t, d), nil, ""); err == nil {
		t.Error("an unknown driver was accepted without a dialect")
	}
	refused(t, errOf(sqltx.Begin(t.Context(), d.open(t, d), nil, "oracle")), "an unknown dialect was accepted")
	d.fail["BEGIN"] = errors.New("too many clients")
	refused(t, errOf(sqltx.Begin(t.Context(), d.open(t, d), nil, core.Postgres)), "a failed BEGIN was not reported")
	refused(t, errOf(sqltx.Follow(t.Context(), nil, core.Postgres, func(context.Context) (sqltx.TxConn, error) {
		return (*sql.Tx)(nil), nil
	})), "no transaction was accepted")
}

// WrapTx does not look into a nil connection.
func TestWrapTxNil(t *testing.T) {
	for _, conn := range []sqltx.Conn{nil, (*sql.Tx)(nil), (*sql.Conn)(nil)} {
		equal(t, sqltx.WrapTx(conn, core.SQLite, nil).Dialect(), core.SQLite, "%T: dialect", conn)
	}
}

func TestTrackerHarmless(t *testing.T) {
	t.Parallel()
	tr := sqltx.NewTracker(core.Postgres)
	for text, want := range map[string]bool{
		"SELECT 1": true, "": true, "-- name: GetOrder :one\nSELECT 1": true, "INSERT INTO a VALUES (';')": true,
		"SELECT 1; SELECT 2": true, "CREATE TABLE a ()": true,
		"SAVEPOINT a": false, "RELEASE a": false, "ROLLBACK TO a": false, "COMMIT": false, "\fROLLBACK": false,
		"SELECT 1; COMMIT": false, "BEGIN": false, "PREPARE TRANSACTION 'a'": false, "no_statement": false,
	} {
		equal(t, tr.Harmless(text), want, "%q: harmless", text)
	}
}

func TestTrackerGuard(t *testing.T) {
	t.Parallel()
	refused := errors.New("refused")
	for name, c := range map[string]struct {
		released error
		want     core.Outcome
		err      error
	}{
		"the transaction is the same": {nil, core.Committed, nil},
		"the guard is gone":           {refused, core.Unknown, core.ErrCommitUnknown},
	} {
		var sent []string
		tr := sqltx.NewTracker(core.Postgres)
		var heard core.Outcome
		tr.OnOutcome(func(o core.Outcome) { heard = o })
		release, err := tr.Guard(t.Context(), func(_ context.Context, query string) error {
			sent = append(sent, query)
			if len(sent) == 2 {
				return c.released
			}
			return nil
		})
		must(t, err)
		release(nil)
		err = tr.Commit(succeed)
		if heard != c.want || !errors.Is(err, c.err) || c.err == nil && err != nil {
			t.Errorf("%s: %s, %v, want %s, %v", name, heard, err, c.want, c.err)
		}
		want := []string{"SAVEPOINT outbox_guard", "RELEASE SAVEPOINT outbox_guard"}
		if !slices.Equal(sent, want) {
			t.Errorf("%s: %q was sent, want %q", name, sent, want)
		}
	}

	tr := sqltx.NewTracker(core.Postgres)
	release, err := tr.Guard(t.Context(), func(context.Context, string) error { return refused })
	if release != nil || !errors.Is(err, refused) || tr.Doubt() == nil {
		t.Errorf("a guard that was refused: %v, doubt %v", err, tr.Doubt())
	}
}
