package inbox_test

import (
	"errors"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/ormoutbox/ormoutbox/core"
	coreinbox "github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/outboxtest/suite"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/adapters"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// A handler ignores a violated constraint. The message is acknowledged only if the handler's writes
// were committed. On PostgreSQL they were not, and the message comes again.
func TestInboxDoesNotAckWhatWasNotCommitted(t *testing.T) {
	t.Parallel()
	adapters.EachSwallower(t, func(t *testing.T, db testdb.DB, a suite.Adapter) {
		w := newInboxWorld(t, db, inboxORM{transactor: a.Transactor, exec: a.Exec},
			func(c *coreinbox.Config) { c.Handler = "handler" })
		fixture.MustExec(t, w.pool, "CREATE TABLE effect (n INTEGER PRIMARY KEY)"+fixture.Engine(db))
		handle := w.in.Middleware(func(msg *message.Message) ([]*message.Message, error) {
			return nil, adapters.Swallow(msg.Context(), a)
		})
		_, err := handle(inboxMessage("e"))
		if db.Dialect != core.Postgres {
			fixture.NoError(t, err)
			if n := adapters.CountEffects(t, w.pool); n != 1 {
				t.Errorf("%d effects, want 1", n)
			}
			return
		}
		fixture.Check(t, errors.Is(err, core.ErrTxAborted),
			"the message was answered with %v, want an error wrapping ErrTxAborted", err)
		if n := adapters.CountEffects(t, w.pool); n != 0 {
			t.Errorf("%d effects of a transaction that was rolled back", n)
		}
		handle = w.in.Middleware(func(msg *message.Message) ([]*message.Message, error) {
			return nil, a.Exec(msg.Context(), "INSERT INTO effect (n) VALUES (1)")
		})
		if _, err = handle(inboxMessage("e")); err != nil {
			t.Errorf("the message came again: %v", err)
		}
		if n := adapters.CountEffects(t, w.pool); n != 1 {
			t.Errorf("%d effects, want 1", n)
		}
	})
}
