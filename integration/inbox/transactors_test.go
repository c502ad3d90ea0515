package inbox_test

import (
	"context"
	"errors"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/ormoutbox/ormoutbox/core"
	coreinbox "github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/inbox/sqlinbox"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/inbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// The inbox has a Transactor of its own. A service that the handler calls has another one: its
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
		store, err := sqlinbox.On(sqltx.NewTransactor(pool, ""), sqlinbox.Config{AutoCreate: true})
		fixture.NoError(t, err)
		in, err := coreinbox.New(coreinbox.Config{
			Consumer: "billing", Handler: "invoice", Store: store, RetryPause: -1,
		})
		fixture.NoError(t, err)
		handler := inbox.Wrap(in, inbox.ReturnDead())(func(msg *message.Message) ([]*message.Message, error) {
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
		_, err = handler(msg)
		fixture.WantError(t, err, failed)
		_, err = handler(msg)
		fixture.NoError(t, err)
		var n int
		fixture.NoError(t, pool.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM work").Scan(&n))
		fixture.Check(t, tries == 2 && n == 1, "%d attempts, %d rows; want 2 and 1", tries, n)
	})
}
