//go:build clusters

package clusters_test

import (
	"context"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/inbox/sqlinbox"
	"github.com/ormoutbox/ormoutbox/core/outboxtest/suite"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/adapters"
	"github.com/ormoutbox/ormoutbox/integration/internal/sqlpause"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// The suite of the repository over a keyspace of one shard. Each case has a keyspace of its own.
func TestVitessRepositorySuite(t *testing.T) {
	suite.TestRepository(t, suite.RepositoryHarness{New: func(t *testing.T) suite.Backend {
		db := testdb.Vitess(t)
		db.Wrap = sqlpause.Connector
		return fixture.SuiteBackend(t, db.Open(t), sqloutbox.Config{Dialect: db.Dialect, Prefix: "c_"})
	}})
}

// The suite of the store of an inbox.
func TestVitessInboxSuite(t *testing.T) {
	suite.TestInboxStore(t, suite.InboxHarness{New: func(t *testing.T) suite.InboxBackend {
		db := testdb.Vitess(t)
		pool, cfg := db.Open(t), sqlinbox.Config{Dialect: db.Dialect, Prefix: "c_"}
		return suite.InboxBackend{
			Store:      fixture.NewInboxStore(t, pool, cfg),
			Another:    func() inbox.Store { return fixture.NewInboxStore(t, pool, cfg) },
			Transactor: sqltx.NewTransactor(pool, db.Dialect),
			TakeElsewhere: func(ctx context.Context, key inbox.Key) error {
				_, err := pool.ExecContext(ctx, "UPDATE c_inbox_failure SET status = 1 WHERE event_id = ?", key.EventID)
				return err
			},
		}
	}})
}

// The suite of adapters: deadlocks, lost answers and savepoints show whether the tracker knows what
// vtgate has done.
func TestVitessAdapterSuite(t *testing.T) {
	for name, tracked := range map[string]bool{"transactor": false, "connector": true} {
		t.Run(name, func(t *testing.T) {
			suite.TestAdapter(t, adapters.Harness(testdb.Vitess(t),
				func(t *testing.T, db testdb.DB, cfg core.Config) suite.Adapter {
					pool := db.Open(t)
					if tracked {
						pool = fixture.TrackedPool(t, db)
					}
					a := adapters.SQL(t, db, pool, sqltx.NewTransactor(pool, db.Dialect), cfg)
					a.Another = sqltx.NewTransactor(pool, "")
					return a
				}))
		})
	}
}
