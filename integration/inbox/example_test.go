package inbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/ThreeDotsLabs/watermill/message"
	"modernc.org/sqlite"

	"github.com/ormoutbox/ormoutbox/core"
	coreinbox "github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/inbox/sqlinbox"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/inbox"
)

func orPanic(errs ...error) {
	if err := errors.Join(errs...); err != nil {
		panic(err)
	}
}

// This inbox uses the tables of sqlinbox. With another library only Transactor and FromContext
// differ.
func Example_inbox() {
	dir, err := os.MkdirTemp("", "inbox-example-")
	orPanic(err)
	defer os.RemoveAll(dir)
	connector, err := sqlite.NewConnector("file:" + filepath.Join(dir, "shop.db") +
		"?_pragma=busy_timeout(10000)&_txlock=immediate")
	orPanic(err)
	pool := sql.OpenDB(connector)
	defer pool.Close()
	ctx := context.Background()

	store, err := sqlinbox.New(pool, sqlinbox.Config{Dialect: core.SQLite})
	orPanic(err, store.Migrate(ctx))
	_, err = pool.ExecContext(ctx, "CREATE TABLE account (cents INTEGER); INSERT INTO account VALUES (0)")
	orPanic(err)

	in, err := coreinbox.New(coreinbox.Config{
		Consumer:   "bank",
		Transactor: sqltx.NewTransactor(pool, core.SQLite),
		Store:      store,
		Handler:    "credit", // a Router names its handlers
	})
	orPanic(err)
	handler := inbox.Wrap(in, inbox.ReturnDead())(func(msg *message.Message) ([]*message.Message, error) {
		tx, err := sqltx.FromContext(msg.Context())
		if err != nil {
			return nil, err
		}
		_, err = tx.ExecContext(msg.Context(), "UPDATE account SET cents = cents + 100")
		return nil, err
	})
	for range 3 {
		_, err := handler(message.NewMessage("payment-1", nil))
		orPanic(err)
	}
	var cents int
	orPanic(pool.QueryRowContext(ctx, "SELECT cents FROM account").Scan(&cents))
	fmt.Println(cents)
	// Output: 100
}
