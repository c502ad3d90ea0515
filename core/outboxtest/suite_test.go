package outboxtest_test

import (
	"context"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
)

func TestRepositoryInMemory(t *testing.T) {
	for _, d := range []core.Dialect{core.Postgres, core.MySQL, core.SQLite} {
		t.Run(string(d), func(t *testing.T) {
			outboxtest.TestRepository(t, outboxtest.RepositoryHarness{
				New: func(*testing.T) outboxtest.Backend {
					r := outboxtest.NewRepository(outboxtest.WithDialect(d))
					return outboxtest.Backend{
						Repository: r,
						Begin:      func(ctx context.Context) (outboxtest.Transaction, error) { return r.Begin(ctx) },
						Audits:     func(testing.TB) int { return len(r.Audits()) },
					}
				},
				AbortsOnError: d == core.Postgres,
			})
		})
	}
}
