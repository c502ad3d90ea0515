package bun_test

import (
	"context"
	"errors"
	"testing"

	"github.com/ormoutbox/ormoutbox/bunoutbox"
	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/adapters"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// A Transactor joins the transaction that Context put into the context if it is tracked, and begins
// no second one if it is not.
func TestTransactorInContext(t *testing.T) {
	t.Parallel()
	eachBun(t, nil, func(t *testing.T, db testdb.DB, way adapters.BunWay) {
		bdb := adapters.OpenBun(t, db, way)
		bdb.SetMaxOpenConns(1)
		fixture.MustExec(t, bdb.DB, "CREATE TABLE written (n INTEGER)"+fixture.Engine(db))
		tx, err := bdb.BeginTx(t.Context(), nil)
		fixture.NoError(t, err)
		ctx := bunoutbox.Context(t.Context(), tx)
		failed := errors.New("failed")
		for _, result := range []error{nil, failed} {
			err := bunoutbox.Transactor(bdb).RunInTx(ctx, func(ctx context.Context, own core.Tx) error {
				if _, err := own.Exec(ctx, "INSERT INTO written (n) VALUES (1)"); err != nil {
					return err
				}
				return result
			})
			if way.Connector {
				fixture.WantError(t, err, result)
			} else {
				fixture.WantError(t, err, core.ErrOtherTransactor)
			}
		}
		fixture.NoError(t, tx.Commit())
		var n, want int
		fixture.NoError(t, bdb.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM written").Scan(&n))
		if way.Connector {
			want = 1
		}
		fixture.Check(t, n == want, "%d rows, want %d", n, want)
	})
}
