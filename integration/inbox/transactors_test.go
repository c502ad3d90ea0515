package inbox_test

import (
	"context"
	"errors"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/inbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// inbox.SQL makes a Transactor of its own. A service that the handler calls has another one: its
// work is part of the inbox's transaction. The pool has one connection.
func TestServiceWithATransactorOfItsOwn(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		pool := db.Open(t)
		pool.SetMaxOpenConns(1)
		fixture.MustExec(t, pool, "CREATE TABLE work (n INTEGER)"+fixture.Engine(db))
		service := sqltx.NewTransactor(pool, "")
		failed := errors.New("the second step failed")
		tries := 0
		handler := inbox.SQL(pool, "billing", inbox.CreateTables(), inbox.Configure(func(c *inbox.Config) {
			c.Handler = func(*message.Message) string { return "invoice" }
			c.RetryPause = -1
		}))(func(msg *message.Message) ([]*message.Message, error) {
			tries++
			err := service.RunInTx(msg.Context(), func(ctx context.Context, tx core.Tx) error {
				_, err := tx.Exec(ctx, "INSERT INTO work (n) VALUES (1)")
				return err
			})
			if err == nil && tries == 1 {
				err = failed
			}
			return nil, err
		})
		msg := message.NewMessage("1", nil)
		msg.SetContext(t.Context())
		msg.Metadata["event_id"] = "e1"
		_, err := handler(msg)
		fixture.WantError(t, err, failed)
		_, err = handler(msg)
		fixture.NoError(t, err)
		var n int
		fixture.NoError(t, pool.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM work").Scan(&n))
		fixture.Check(t, tries == 2 && n == 1, "%d attempts, %d rows; want 2 and 1", tries, n)
	})
}
