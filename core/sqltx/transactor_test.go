package sqltx_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

func TestTransactor(t *testing.T) {
	failed := errors.New("no stock")
	exec := func(query string) func(context.Context, core.Transactor, core.Tx) error {
		return func(ctx context.Context, _ core.Transactor, tx core.Tx) error {
			_, err := tx.Exec(ctx, query)
			return err
		}
	}
	for name, tc := range map[string]struct {
		fn   func(ctx context.Context, r core.Transactor, tx core.Tx) error
		err  error
		log  []string
		want core.Outcome
	}{
		"commits": {
			func(context.Context, core.Transactor, core.Tx) error { return nil },
			nil,
			[]string{"BEGIN", "COMMIT"},
			core.Committed,
		},
		"rolls back": {
			func(context.Context, core.Transactor, core.Tx) error { return failed },
			failed,
			[]string{"BEGIN", "ROLLBACK"},
			core.RolledBack,
		},
		"nested is a savepoint": {
			func(ctx context.Context, r core.Transactor, _ core.Tx) error {
				return r.RunInTx(ctx, func(ctx context.Context, _ core.Tx) error {
					return r.RunInTx(ctx, func(context.Context, core.Tx) error { return nil })
				})
			},
			nil,
			[]string{
				"BEGIN", "SAVEPOINT outbox_1", "SAVEPOINT outbox_2", "RELEASE SAVEPOINT outbox_2",
				"RELEASE SAVEPOINT outbox_1", "COMMIT",
			},
			core.Committed,
		},
		"nested rolls back alone": {
			func(ctx context.Context, r core.Transactor, _ core.Tx) error {
				if err := r.RunInTx(ctx, func(context.Context, core.Tx) error { return failed }); !errors.Is(err,
					failed) {
					return errors.New("the nested error is lost")
				}
				return nil
			},
			nil,
			[]string{
				"BEGIN", "SAVEPOINT outbox_1", "ROLLBACK TO SAVEPOINT outbox_1", "RELEASE SAVEPOINT outbox_1",
				"COMMIT",
			},
			core.Committed,
		},
		"does not commit what the database may have rolled back": {
			func(ctx context.Context, _ core.Transactor, tx core.Tx) error {
				_, _ = tx.Exec(ctx, "UPDATE deadlock")
				return nil
			},
			core.ErrTxAborted,
			[]string{"BEGIN", "UPDATE deadlock", askMySQL, askVitess, "ROLLBACK"},
			core.RolledBack,
		},
		"sends nothing more after that": {
			func(ctx context.Context, r core.Transactor, tx core.Tx) error {
				_, _ = tx.Exec(ctx, "UPDATE deadlock")
				for _, run := range []func() error{
					func() error { _, err := tx.Exec(ctx, "UPDATE t"); return err },
					func() error { _, err := tx.Query(ctx, "UPDATE t"); return err },
					func() error { return tx.(*sqltx.Tx).QueryRowContext(ctx, "UPDATE t").Scan(new(int)) },
					//nolint:sqlclosecheck // there is no statement
					func() error { _, err := tx.(*sqltx.Tx).PrepareContext(ctx, "UPDATE t"); return err },
					func() error { return r.RunInTx(ctx, func(context.Context, core.Tx) error { return nil }) },
				} {
					if err := run(); !errors.Is(err, core.ErrTxAborted) {
						return fmt.Errorf("a further statement: %w", err)
					}
				}
				return nil
			},
			core.ErrTxAborted,
			[]string{"BEGIN", "UPDATE deadlock", askMySQL, askVitess, "ROLLBACK"},
			core.RolledBack,
		},
		"a statement that may do anything is guarded": {
			exec("CALL p()"),
			nil,
			[]string{"BEGIN", "SAVEPOINT outbox_guard", "CALL p()", "RELEASE SAVEPOINT outbox_guard", "COMMIT"},
			core.Committed,
		},
		"a statement that committed": {
			exec("CALL commits()"),
			core.ErrCommitUnknown,
			[]string{"BEGIN", "SAVEPOINT outbox_guard", "CALL commits()", "RELEASE SAVEPOINT outbox_guard", "ROLLBACK"},
			core.Unknown,
		},
		"COMMIT as text": {
			exec("COMMIT AND CHAIN"),
			core.ErrCommitUnknown,
			[]string{"BEGIN", "COMMIT AND CHAIN", "ROLLBACK"},
			core.Unknown,
		},
		"COMMIT among other statements": {
			exec("UPDATE t; COMMIT"),
			core.ErrCommitUnknown,
			[]string{"BEGIN", "UPDATE t; COMMIT", "COMMIT"},
			core.Unknown,
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newFake()
			d.fail["UPDATE deadlock"] = errors.New("deadlock")
			if name == "a statement that committed" {
				d.fail["RELEASE SAVEPOINT outbox_guard"] = &mysqlError{1305, "SAVEPOINT outbox_guard does not exist"}
			}
			r := sqltx.NewTransactor(d.open(t, d), core.MySQL)
			var h heard
			err := r.RunInTx(t.Context(), func(ctx context.Context, tx core.Tx) error {
				h.on(tx)
				if own, err := sqltx.FromContext(ctx); err != nil || own != tx {
					t.Errorf("FromContext: %v", err)
				}
				return tc.fn(ctx, r, tx)
			})
			wantIs(t, err, tc.err)
			if got := d.statements(); !slices.Equal(got, tc.log) {
				t.Errorf("ran %q, want %q", got, tc.log)
			}
			h.want(t, tc.want)
		})
	}
}

func TestTransactorPanic(t *testing.T) {
	d := newFake()
	r := sqltx.NewTransactor(d.open(t, d), core.Postgres)
	var outer, inner heard
	func() {
		defer func() {
			equal(t, recover(), "boom", "recovered")
		}()
		_ = r.RunInTx(t.Context(), func(ctx context.Context, tx core.Tx) error {
			outer.on(tx)
			return r.RunInTx(ctx, func(_ context.Context, tx core.Tx) error {
				inner.on(tx)
				panic("boom")
			})
		})
	}()
	inner.want(t, core.RolledBack)
	outer.want(t, core.RolledBack)
	want := []string{
		"BEGIN", "SAVEPOINT outbox_1", "ROLLBACK TO SAVEPOINT outbox_1", "RELEASE SAVEPOINT outbox_1",
		"ROLLBACK",
	}
	if got := d.statements(); !slices.Equal(got, want) {
		t.Errorf("ran %q, want %q", got, want)
	}
}

func TestTransactorOfAnotherPoolBeginsItsOwn(t *testing.T) {
	d1, d2 := newFake(), newFake()
	r1, r2 := sqltx.NewTransactor(d1.open(t, d1), core.Postgres), sqltx.NewTransactor(d2.open(t, d2), core.Postgres)
	must(t, r1.RunInTx(t.Context(), func(ctx context.Context, _ core.Tx) error {
		return r2.RunInTx(ctx, func(context.Context, core.Tx) error { return nil })
	}))
	want := []string{"BEGIN", "COMMIT"}
	if !slices.Equal(d1.statements(), want) || !slices.Equal(d2.statements(), want) {
		t.Errorf("ran %q and %q", d1.statements(), d2.statements())
	}
}

func TestTransactorReportsWrongUse(t *testing.T) {
	d := newFake()
	nothing := func(context.Context, core.Tx) error { return nil }
	refused(t, sqltx.NewTransactor(nil, core.Postgres).RunInTx(t.Context(), nothing), "a nil pool was accepted")
	if err := sqltx.NewTransactor(d.open(t, d), "").RunInTx(t.Context(), nothing); err == nil {
		t.Error("an unknown driver was accepted without a dialect")
	}
	if err := sqltx.NewTransactor(d.open(t, d), core.Postgres).RunInTx(t.Context(), nil); err == nil {
		t.Error("a nil function was accepted")
	}
	_, err := sqltx.FromContext(t.Context())
	wantIs(t, err, core.ErrNoTransaction)
	foreign := core.ContextWithTx(t.Context(), sqltx.WrapTx(&sql.Tx{}, core.Postgres, nil))
	_, err = sqltx.FromContext(foreign)
	wantIs(t, err, core.ErrNoTransaction)
	equal(t, len(d.statements()), 0, "ran %q", d.statements())
}

// A Transactor that can never begin a transaction is refused where a Transactor is accepted.
func TestTransactorOfNothing(t *testing.T) {
	for want, r := range map[string]core.Transactor{
		"the Transactor is nil": nil,
		"nil *sql.DB":           sqltx.NewTransactor(nil, core.Postgres),
		"oracle":                sqltx.NewTransactor(new(sql.DB), "oracle"),
	} {
		if err := core.CheckTransactor(r); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	noError(t, core.CheckTransactor(sqltx.NewTransactor(new(sql.DB), core.SQLite)))
}
