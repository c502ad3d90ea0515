package once_test

import (
	"context"
	"database/sql"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/once/sqlonce"
	"github.com/ormoutbox/ormoutbox/core/outboxtest/suite"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// onceStores returns a function that makes a new store for each case: tables under a prefix
// on the servers, a file on SQLite.
func onceStores(t *testing.T, db testdb.DB) func(t *testing.T) (*sqlonce.Store, *sql.DB) {
	t.Helper()
	prefixed := prefixedOnceStores(t, db)
	return func(t *testing.T) (*sqlonce.Store, *sql.DB) {
		t.Helper()
		s, pool, _ := prefixed(t)
		return s, pool
	}
}

// prefixedOnceStores is onceStores for tests that need the prefix.
func prefixedOnceStores(t *testing.T, db testdb.DB) func(t *testing.T) (s *sqlonce.Store, pool *sql.DB, prefix string) {
	t.Helper()
	pool := db.Open(t)
	var cases atomic.Int64
	return func(t *testing.T) (*sqlonce.Store, *sql.DB, string) {
		t.Helper()
		pool, cfg := pool, sqlonce.Config{Dialect: db.Dialect, Prefix: fmt.Sprintf("c%d_", cases.Add(1))}
		if db.Dialect == core.SQLite {
			pool = testdb.SQLite(t).Open(t)
		}
		return fixture.NewOnceStore(t, pool, cfg), pool, cfg.Prefix
	}
}

func sqlOnce(newStore func(*testing.T) (
	*sqlonce.Store, *sql.DB, string,
),
) func(*testing.T) (once.Store, func(*testing.T, once.Key)) {
	return func(t *testing.T) (once.Store, func(*testing.T, once.Key)) {
		s, pool, prefix := newStore(t)
		return s, func(t *testing.T, key once.Key) {
			t.Helper()
			fixture.MustExec(t, pool, "DELETE FROM "+prefix+"idempotency_key WHERE id = '"+key.ID+"'")
		}
	}
}

// The suite of the lease form over every database.
func TestOnceStoreSuite(t *testing.T) {
	t.Parallel()
	testdb.Every(t, func(t *testing.T, db testdb.DB) {
		suite.TestOnceStore(t, fixture.OnceHarness(sqlOnce(prefixedOnceStores(t, db))))
	})
}

// The suite of the transaction form over every database.
func TestOnceTxStoreSuite(t *testing.T) {
	t.Parallel()
	testdb.Every(t, func(t *testing.T, db testdb.DB) {
		newStore := onceStores(t, db)
		suite.TestOnceTxStore(t, suite.OnceTxHarness{New: func(t *testing.T) suite.OnceTxBackend {
			s, pool := newStore(t)
			return suite.OnceTxBackend{
				Store: s, TxStore: s,
				Begin: func(ctx context.Context) (suite.Transaction, error) {
					return sqltx.Begin(ctx, pool, nil, db.Dialect)
				},
			}
		}})
	})
}
