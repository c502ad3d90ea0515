package suite_test

import (
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/inbox/inboxtest"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/outboxtest/suite"
)

func TestInboxStoreInMemory(t *testing.T) {
	for _, d := range []core.Dialect{core.Postgres, core.MySQL, core.SQLite} {
		t.Run(string(d), func(t *testing.T) {
			suite.TestInboxStore(t, suite.InboxHarness{New: func(*testing.T) suite.InboxBackend {
				s := inboxtest.NewStore()
				return suite.InboxBackend{
					Store:      s,
					Another:    func() inbox.Store { return s },
					Transactor: outboxtest.NewRepository(outboxtest.WithDialect(d)).Transactor(),
				}
			}})
		})
	}
}
