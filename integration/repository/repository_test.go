package repository_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest/suite"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
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
				return fixture.SuiteBackend(t, pool, cfg)
			},
			AbortsOnError: db.Dialect == core.Postgres,
			SingleWriter:  db.Dialect == core.SQLite,
		})
	})
}
