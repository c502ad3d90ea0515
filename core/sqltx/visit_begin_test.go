package sqltx_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"slices"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

func TestVisitOrBegin(t *testing.T) {
	reason := errors.New("reason")
	for name, tc := range map[string]struct {
		fn   func(v *sqltx.VisitedTx) error
		err  error
		want []string
		out  core.Outcome
	}{
		"commits": {
			func(*sqltx.VisitedTx) error { return nil }, nil, []string{"BEGIN", "INSERT", "COMMIT"}, core.Committed,
		},
		"fails": {
			func(*sqltx.VisitedTx) error { return reason }, reason,
			[]string{"BEGIN", "INSERT", "ROLLBACK"},
			core.RolledBack,
		},
		"panics": {
			func(*sqltx.VisitedTx) error { panic(reason) }, reason,
			[]string{"BEGIN", "INSERT", "ROLLBACK"},
			core.RolledBack,
		},
		"refuses": {
			func(v *sqltx.VisitedTx) error { v.RefuseCommit(reason); return nil }, reason,
			[]string{"BEGIN", "INSERT", "ROLLBACK"},
			core.RolledBack,
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newFake()
			pool := trackedPool(t, d, core.SQLite)
			pool.SetMaxOpenConns(1)
			var h heard
			err := func() (err error) {
				defer func() {
					if r := recover(); r != nil {
						err = r.(error)
					}
				}()
				return sqltx.VisitOrBegin(t.Context(), execOf(pool), func(v *sqltx.VisitedTx) error {
					if !v.Began() {
						t.Error("it has begun no transaction")
					}
					h.on(v)
					if _, err := v.ExecContext(t.Context(), "INSERT"); err != nil {
						return err
					}
					return tc.fn(v)
				})
			}()
			wantIs(t, err, tc.err)
			h.want(t, tc.out)
			if !slices.Equal(d.statements(), tc.want) {
				t.Errorf("the driver was asked %q, want %q", d.statements(), tc.want)
			}
			if n := pool.Stats().InUse; n != 0 {
				t.Errorf("%d connections are in use", n)
			}
		})
	}
}

func TestVisitOrBeginInATransaction(t *testing.T) {
	d := newFake()
	tx, own := beginTracked(t, trackedPool(t, d, core.SQLite))
	var h heard
	h.on(own)
	must(t, sqltx.VisitOrBegin(t.Context(), execOf(tx), func(v *sqltx.VisitedTx) error {
		if v.Began() || !v.Same(own) {
			t.Error("it is another transaction")
		}
		return nil
	}))
	must(t, tx.Commit())
	h.want(t, core.Committed)
}

// A transaction that was begun by a text is not known.
func TestVisitOrBeginAfterText(t *testing.T) {
	d := newFake()
	pool := trackedPool(t, d, core.SQLite)
	conn, err := pool.Conn(t.Context())
	must(t, err)
	defer conn.Close()
	visit := func() error {
		return sqltx.VisitOrBegin(t.Context(), execOf(conn), func(*sqltx.VisitedTx) error { return nil })
	}
	for _, step := range []struct {
		text  string
		known bool
	}{
		{"INSERT", true},
		{" ;begin IMMEDIATE", false},
		{"ROLLBACK TO SAVEPOINT a", false},
		{"COMMIT", true},
		{"START TRANSACTION", false},
		{"rollback", true},
	} {
		_, err := conn.ExecContext(t.Context(), step.text)
		must(t, err)
		if err := visit(); step.known != (err == nil) || !step.known && !errors.Is(err, core.ErrUntracked) {
			t.Errorf("after %s: %v", step.text, err)
		}
	}
}

// If the connection has died, database/sql takes another one, as it does for every statement.
func TestVisitOrBeginOnADeadConnection(t *testing.T) {
	d := newFake()
	pool := trackedPool(t, d, core.SQLite)
	d.fail["BEGIN"] = driver.ErrBadConn
	ran := 0
	visit := func(ctx context.Context) error {
		return sqltx.VisitOrBegin(ctx, execOf(pool), func(*sqltx.VisitedTx) error { ran++; return nil })
	}
	wantIs(t, visit(t.Context()), driver.ErrBadConn)
	if want := []string{"BEGIN", "BEGIN", "BEGIN"}; !slices.Equal(d.statements(), want) {
		t.Errorf("the driver was asked %q, want %q", d.statements(), want)
	}
	delete(d.fail, "BEGIN")
	must(t, visit(t.Context()))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	wantIs(t, visit(ended), context.Canceled)
	if ran != 1 {
		t.Errorf("the function ran %d times", ran)
	}
}
