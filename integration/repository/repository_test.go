package repository_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest/suite"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/sqlpause"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// The repository suite over every database. Cases run in parallel. On the servers each case has
// tables under a prefix of its own. On SQLite, where writers wait for each other, each has a file
// of its own.
func TestRepositorySuite(t *testing.T) {
	t.Parallel()
	testdb.Every(t, func(t *testing.T, db testdb.DB) {
		db.Wrap = sqlpause.Connector
		pool := db.Open(t)
		var cases atomic.Int64
		suite.TestRepository(t, suite.RepositoryHarness{
			New: func(t *testing.T) suite.Backend {
				pool, dialect := pool, db.Dialect
				cfg := sqloutbox.Config{Dialect: dialect, Prefix: fmt.Sprintf("c%d_", cases.Add(1))}
				if dialect == core.SQLite {
					file := testdb.SQLite(t)
					file.Wrap = sqlpause.Connector
					pool = file.Open(t)
				}
				return sqlBackend(t, pool, cfg)
			},
			AbortsOnError: db.Dialect == core.Postgres,
			SingleWriter:  db.Dialect == core.SQLite,
		})
	})
}

// sqlBackend creates the tables and returns the access to them.
func sqlBackend(t *testing.T, pool *sql.DB, cfg sqloutbox.Config) suite.Backend {
	t.Helper()
	repo := fixture.NewRepository(t, pool, cfg)
	return suite.Backend{
		Repository: repo,
		Store:      fixture.NewOpsStore(t, repo),
		Begin: func(ctx context.Context) (suite.Transaction, error) {
			return sqltx.Begin(ctx, pool, nil, cfg.Dialect)
		},
		Lock: func(ctx context.Context, tx suite.Transaction, ids ...core.RowID) error {
			return lockRows(ctx, tx, cfg.Prefix, ids...)
		},
		SetHeaders: func(t testing.TB, id core.RowID, text string) {
			t.Helper()
			setHeaders(t, pool, cfg, id, text)
		},
		Audits: func(t testing.TB) int {
			t.Helper()
			var n int
			fixture.NoError(t, pool.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM "+cfg.Prefix+
				"audit").Scan(&n))
			return n
		},
	}
}

// lockRows locks rows of the table until the end of the transaction.
func lockRows(ctx context.Context, tx core.Tx, prefix string, ids ...core.RowID) error {
	for _, id := range ids {
		var arg any = id[:]
		text := "SELECT id FROM " + prefix + "event WHERE id = ? FOR UPDATE"
		if tx.Dialect() == core.Postgres {
			text, arg = "SELECT id FROM "+prefix+"event WHERE id = $1::uuid FOR UPDATE", id.String()
		}
		rows, err := tx.Query(ctx, text, arg)
		if err != nil {
			return err
		}
		found := rows.Next()
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			return err
		}
		if !found {
			return fmt.Errorf("no row %s to lock", id)
		}
	}
	return nil
}

// setHeaders writes a value into the column of headers, as another program may do.
func setHeaders(t testing.TB, pool *sql.DB, cfg sqloutbox.Config, id core.RowID, text string) {
	t.Helper()
	q, arg := "UPDATE "+cfg.Prefix+"event SET headers = ? WHERE id = ?", any(id[:])
	if cfg.Dialect == core.Postgres {
		q, arg = "UPDATE "+cfg.Prefix+"event SET headers = $1::text::jsonb WHERE id = $2::text::uuid", id.String()
	}
	res, err := pool.ExecContext(t.Context(), q, text, arg)
	fixture.NoError(t, err)
	if n, err := res.RowsAffected(); err != nil || n != 1 {
		t.Fatalf("%d rows changed, %v", n, err)
	}
}
