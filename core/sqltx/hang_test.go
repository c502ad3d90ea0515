package sqltx_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

// go-sql-driver/mysql waits for the answer of ROLLBACK for ever. The tracker does not.
func TestRollbackOfADatabaseThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newFake()
		db := d.open(t, sqltx.Connector(d, core.MySQL))
		for name, end := range map[string]func() error{
			"rollback": func() error {
				tx, err := db.BeginTx(t.Context(), nil)
				must(t, err)
				d.hangs = true
				return tx.Rollback()
			},
			"commit that is refused": func() error {
				tx, err := db.BeginTx(t.Context(), nil)
				must(t, err)
				refused := errors.New("refused")
				exec := func(ctx context.Context, query string) error {
					_, err := tx.ExecContext(ctx, query)
					return err
				}
				must(t, sqltx.Visit(t.Context(), exec, func(v *sqltx.VisitedTx) error {
					v.RefuseCommit(refused)
					return nil
				}))
				d.hangs = true
				if err = tx.Commit(); !errors.Is(err, refused) {
					t.Error(err)
				}
				return err
			},
		} {
			since := time.Now()
			wantErr(t, end(), context.DeadlineExceeded, "%s", name)
			if waited := time.Since(since); waited != 5*time.Second {
				t.Errorf("%s waited %s", name, waited)
			}
			if open := db.Stats().OpenConnections; open != 0 {
				t.Errorf("%s: the pool keeps the connection, whose next answer is that of ROLLBACK", name)
			}
			d.hangs = false
		}
	})
}

// A driver may leave statements without arguments to Prepare.
func TestRollbackOfADriverThatPrepares(t *testing.T) {
	d := newFake()
	d.skip = true
	db := d.open(t, sqltx.Connector(d, core.MySQL))
	tx, err := db.BeginTx(t.Context(), nil)
	must(t, err)
	must(t, tx.Rollback())
	if got := d.statements(); !slices.Contains(got, "ROLLBACK") || db.Stats().OpenConnections != 1 {
		t.Errorf("sent %q, %d connections are open", got, db.Stats().OpenConnections)
	}
}
