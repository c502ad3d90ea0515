package inbox_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	coreinbox "github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/inbox/sqlinbox"
	"github.com/ormoutbox/ormoutbox/core/outboxtest/suite"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// The suite of the store over every database.
func TestInboxStoreSuite(t *testing.T) {
	t.Parallel()
	testdb.Every(t, func(t *testing.T, db testdb.DB) {
		pool := db.Open(t)
		var cases atomic.Int64
		suite.TestInboxStore(t, suite.InboxHarness{New: func(t *testing.T) suite.InboxBackend {
			pool, cfg := pool, sqlinbox.Config{Dialect: db.Dialect, Prefix: fmt.Sprintf("c%d_", cases.Add(1))}
			if db.Dialect == core.SQLite {
				pool = testdb.SQLite(t).Open(t)
			}
			return suite.InboxBackend{
				Store:      fixture.NewInboxStore(t, pool, cfg),
				Another:    func() coreinbox.Store { return fixture.NewInboxStore(t, pool, cfg) },
				Transactor: sqltx.NewTransactor(pool, db.Dialect),
				TakeElsewhere: func(ctx context.Context, key coreinbox.Key) error {
					_, err := pool.ExecContext(ctx,
						"UPDATE "+cfg.Prefix+"inbox_failure SET status = 1 WHERE event_id = '"+key.EventID+"'")
					return err
				},
			}
		}})
	})
}
