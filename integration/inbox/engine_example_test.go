package inbox_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"

	"modernc.org/sqlite"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/inbox/sqlinbox"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

// A consumer without Watermill gets the same message twice, and credits the account once.
func Example_inboxWithoutWatermill() {
	dir, err := os.MkdirTemp("", "inbox-example-")
	orPanic(err)
	defer os.RemoveAll(dir)
	connector, err := sqlite.NewConnector("file:" + filepath.Join(dir, "bank.db") +
		"?_pragma=busy_timeout(10000)&_txlock=immediate")
	orPanic(err)
	pool := sql.OpenDB(connector)
	defer pool.Close()
	ctx := context.Background()

	store, err := sqlinbox.New(pool, sqlinbox.Config{})
	orPanic(err, store.Migrate(ctx))
	_, err = pool.ExecContext(ctx, "CREATE TABLE account (cents INTEGER); INSERT INTO account VALUES (0)")
	orPanic(err)

	in, err := inbox.New(inbox.Config{
		Consumer: "bank", Handler: "credit", Transactor: sqltx.NewTransactor(pool, ""), Store: store,
	})
	orPanic(err)
	credit := func(ctx context.Context, tx core.Tx, msg inbox.Message) error {
		_, err := tx.Exec(ctx, "UPDATE account SET cents = cents + ?", string(msg.Payload))
		return err
	}
	msg := inbox.Message{
		Topic: "payments", Headers: map[string]string{core.HeaderEventID: "payment-1"}, Payload: []byte("100"),
	}
	for range 2 {
		fmt.Println(in.Process(ctx, msg, credit).Action)
	}
	var cents int
	orPanic(pool.QueryRowContext(ctx, "SELECT cents FROM account").Scan(&cents))
	fmt.Println(cents, "cents")
	// Output:
	// ack
	// ack
	// 100 cents
}
