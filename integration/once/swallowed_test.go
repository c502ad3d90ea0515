package once_test

import (
	"context"
	"errors"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/once/sqlonce"
	"github.com/ormoutbox/ormoutbox/core/outboxtest/suite"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/adapters"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// The work ignores a violated constraint. Its key is kept only if its writes were committed.
func TestOnceDoesNotKeepWhatWasNotCommitted(t *testing.T) {
	t.Parallel()
	adapters.EachSwallower(t, func(t *testing.T, db testdb.DB, a suite.Adapter) {
		pool := db.Open(t)
		runner, err := once.New(once.Config{Store: fixture.NewOnceStore(t, pool, sqlonce.Config{Dialect: db.Dialect})})
		fixture.NoError(t, err)
		fixture.MustExec(t, pool, "CREATE TABLE effect (n INTEGER PRIMARY KEY)"+fixture.Engine(db))
		key := once.Key{Scope: "test", ID: "k"}
		run := func(fn func(ctx context.Context) error) (bool, error) {
			_, replayed, err := runner.RunInTx(t.Context(), a.Transactor, key, once.Fingerprint{},
				func(ctx context.Context, _ core.Tx) (once.Result, error) {
					return once.Result{Data: []byte("done")}, fn(ctx)
				})
			return replayed, err
		}
		_, err = run(func(ctx context.Context) error { return adapters.Swallow(ctx, a) })
		if db.Dialect == core.Postgres {
			if err == nil || adapters.CountEffects(t, pool) != 0 {
				t.Fatalf("RunInTx: %v, %d effects", err, adapters.CountEffects(t, pool))
			}
			_, err = run(func(ctx context.Context) error { return a.Exec(ctx, "INSERT INTO effect (n) VALUES (1)") })
		}
		fixture.NoError(t, err)
		replayed, err := run(func(context.Context) error { return errors.New("it ran again") })
		if err != nil || !replayed || adapters.CountEffects(t, pool) != 1 {
			t.Errorf("replayed %t, %v, %d effects", replayed, err, adapters.CountEffects(t, pool))
		}
	})
}
