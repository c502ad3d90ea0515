package pgxoutbox_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest/suite"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/adapters"
	"github.com/ormoutbox/ormoutbox/integration/internal/longtest"
	"github.com/ormoutbox/ormoutbox/integration/internal/sqlpause"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
	"github.com/ormoutbox/ormoutbox/pgxoutbox"
)

// The repository suite over a pool of pgx, in each mode of pgx. With -short it runs in the usual
// one.
func TestRepositorySuitePGX(t *testing.T) {
	longtest.Mark(t)
	t.Parallel()
	for name, mode := range map[string]pgx.QueryExecMode{
		"cache statement": pgx.QueryExecModeCacheStatement, "cache describe": pgx.QueryExecModeCacheDescribe,
		"describe": pgx.QueryExecModeDescribeExec, "exec": pgx.QueryExecModeExec,
		"simple": pgx.QueryExecModeSimpleProtocol,
	} {
		if testing.Short() && mode != pgx.QueryExecModeCacheStatement {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := adapters.OpenPGX(t, testdb.Postgres(t), func(c *pgxpool.Config) {
				c.ConnConfig.DefaultQueryExecMode = mode
				c.ConnConfig.Tracer = sqlpause.Tracer{}
			})
			var cases atomic.Int64
			suite.TestRepository(t, suite.RepositoryHarness{
				New: func(t *testing.T) suite.Backend {
					return backend(t, pool, sqloutbox.Config{Prefix: fmt.Sprintf("c%d_", cases.Add(1))})
				},
				AbortsOnError: true,
			})
		})
	}
}

// backend creates the tables and returns the access to them.
func backend(t *testing.T, pool *pgxoutbox.Pool, cfg sqloutbox.Config) suite.Backend {
	t.Helper()
	repo, err := pgxoutbox.NewRepository(pool.Pool, cfg)
	fixture.NoError(t, err)
	fixture.NoError(t, repo.Migrate(t.Context()))
	return suite.Backend{
		Repository: repo,
		Store:      fixture.NewOpsStore(t, repo),
		Begin: func(ctx context.Context) (suite.Transaction, error) {
			tx, err := pool.Begin(ctx)
			if err != nil {
				return nil, err
			}
			own, err := pgxoutbox.TxOf(ctx, tx)
			return transaction{own, tx}, err
		},
		Lock: func(ctx context.Context, tx suite.Transaction, ids ...core.RowID) error {
			for _, id := range ids {
				var one int
				if err := tx.(transaction).tx.QueryRow(ctx, "SELECT 1 FROM "+cfg.Prefix+
					"event WHERE id = $1::uuid FOR UPDATE", id.String()).Scan(&one); err != nil {
					return err
				}
			}
			return nil
		},
		SetHeaders: func(t testing.TB, id core.RowID, text string) {
			t.Helper()
			tag, err := pool.Exec(t.Context(), "UPDATE "+cfg.Prefix+
				"event SET headers = $1::text::jsonb WHERE id = $2::text::uuid", text, id.String())
			fixture.Must(t, err == nil && tag.RowsAffected() == 1, "%s, %v", tag, err)
		},
		Audits: func(t testing.TB) (n int) {
			t.Helper()
			fixture.NoError(t, pool.QueryRow(t.Context(), "SELECT COUNT(*) FROM "+cfg.Prefix+"audit").Scan(&n))
			return n
		},
	}
}

// transaction is a transaction of pgx that the suite ends without a context.
type transaction struct {
	core.Tx
	tx pgx.Tx
}

func (t transaction) Commit() error { return ended(t.tx.Commit(context.Background())) }

func (t transaction) Rollback() error { return ended(t.tx.Rollback(context.Background())) }

// ended hides the error of a transaction that has ended, so that Rollback can be deferred.
func ended(err error) error {
	if errors.Is(err, pgx.ErrTxClosed) {
		return nil
	}
	return err
}

// Pool implements the method by which sqloutbox finds the pool of a transaction.
func (t transaction) Pool() sqloutbox.Pool { return t.Tx.(interface{ Pool() sqloutbox.Pool }).Pool() }
