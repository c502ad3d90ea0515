package suite_test

import (
	"context"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/outboxtest/suite"
)

func TestOnceStoreInMemory(t *testing.T) {
	suite.TestOnceStore(t, suite.OnceHarness{
		New:    func(*testing.T) once.Store { return outboxtest.NewOnceStore() },
		Forget: func(_ *testing.T, s once.Store, key once.Key) { s.(*outboxtest.OnceStore).Forget(key) },
	})
}

func TestOnceTxStoreInMemory(t *testing.T) {
	for _, d := range []core.Dialect{core.Postgres, core.MySQL, core.SQLite} {
		t.Run(string(d), func(t *testing.T) {
			suite.TestOnceTxStore(t, suite.OnceTxHarness{New: func(*testing.T) suite.OnceTxBackend {
				r := outboxtest.NewRepository(outboxtest.WithDialect(d))
				s := r.OnceStore()
				return suite.OnceTxBackend{
					Store: s, TxStore: s,
					Begin: func(ctx context.Context) (suite.Transaction, error) { return r.Begin(ctx) },
				}
			}})
		})
	}
}
