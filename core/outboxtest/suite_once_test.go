package outboxtest_test

import (
	"context"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
)

func TestOnceStoreInMemory(t *testing.T) {
	outboxtest.TestOnceStore(t, outboxtest.OnceHarness{
		New:    func(*testing.T) once.Store { return outboxtest.NewOnceStore() },
		Forget: func(_ *testing.T, s once.Store, key once.Key) { s.(*outboxtest.OnceStore).Forget(key) },
	})
}

func TestOnceTxStoreInMemory(t *testing.T) {
	for _, d := range []core.Dialect{core.Postgres, core.MySQL, core.SQLite} {
		t.Run(string(d), func(t *testing.T) {
			outboxtest.TestOnceTxStore(t, outboxtest.OnceTxHarness{New: func(*testing.T) outboxtest.OnceTxBackend {
				r := outboxtest.NewRepository(outboxtest.WithDialect(d))
				s := r.OnceStore()
				return outboxtest.OnceTxBackend{
					Store: s, TxStore: s,
					Begin: func(ctx context.Context) (outboxtest.Transaction, error) { return r.Begin(ctx) },
				}
			}})
		})
	}
}
