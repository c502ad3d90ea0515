package bun_test

import (
	"context"
	"testing"

	"github.com/uptrace/bun"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/adapters"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// A server may end a transaction and tell nobody: a Galera node does while it executes a prepared
// statement. The following statements commit one by one, and COMMIT succeeds. The driver knows.
func TestBunTransactionEndedInSilence(t *testing.T) {
	t.Parallel()
	testdb.MariaDBAndMySQL(t, func(t *testing.T, db testdb.DB) {
		for _, way := range []adapters.BunWay{{}, {Connector: true}} {
			b := newBunEnv(t, fixture.Rewrite(t, db.Another(t), "SELECT 'in silence'", "ROLLBACK"), way)
			begins := map[string]func(func(context.Context, bun.Tx) error) error{
				"of the outbox": func(fn func(context.Context, bun.Tx) error) error {
					return b.ob.RunInTx(t.Context(), fn)
				},
			}
			if way.Connector {
				begins["of Bun"] = func(fn func(context.Context, bun.Tx) error) error {
					return b.RunInTx(t.Context(), nil, fn)
				}
			}
			for name, begin := range begins {
				err := begin(func(ctx context.Context, tx bun.Tx) error {
					b.exec(t, ctx, tx.NewInsert().Model(newBOrder("undone")))
					fixture.NoError(t, b.publish(ctx, tx, "undone"))
					_, err := tx.ExecContext(ctx, "SELECT 'in silence'")
					return err
				})
				if err == nil {
					t.Errorf("%s, %+v: it committed", name, way)
				}
				fixture.WantError(t, err, core.ErrCommitUnknown)
				b.WantCount(t, "b_orders", 0)
				b.wantRows(t)
			}
		}
	})
}
