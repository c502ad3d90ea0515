package pgxoutbox_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest/suite"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/adapters"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// The adapter suite over native pgx: in the usual mode, which prepares statements, and without
// -short in the mode that sends texts.
func TestAdapterSuitePGX(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]pgx.QueryExecMode{
		"cached": pgx.QueryExecModeCacheStatement, "simple": pgx.QueryExecModeSimpleProtocol,
	} {
		if testing.Short() && mode != pgx.QueryExecModeCacheStatement {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := adapters.Harness(testdb.Postgres(t), func(t *testing.T, db testdb.DB, cfg core.Config) suite.Adapter {
				return adapters.PGX(t, db, mode, cfg)
			})
			h.Defers = true
			suite.TestAdapter(t, h)
		})
	}
}
