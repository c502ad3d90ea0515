// Command ent is an idempotent consumer on Ent: each payment is delivered three times and credited
// once.
//
//	go run ./examples/consumer/ent
package main

import (
	"context"
	"database/sql"
	"fmt"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	_ "modernc.org/sqlite" // the driver

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/entoutbox"
	"github.com/ormoutbox/ormoutbox/examples/ent/ent"
	"github.com/ormoutbox/ormoutbox/inbox"
)

func main() {
	db := open()
	channel := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, watermill.NopLogger{})
	router := check(message.NewRouter(message.RouterConfig{}, watermill.NopLogger{}))

	router.AddMiddleware(inbox.Middleware(entoutbox.Transactor(db.Tx), "bank", inbox.CreateTables()))
	router.AddConsumerHandler("credit", "payments", channel, func(msg *message.Message) error {
		tx, err := entoutbox.FromContext[*ent.Tx](msg.Context())
		if err != nil {
			return err
		}
		// with an entity: tx.Account.UpdateOneID("ada").AddCents(100)
		_, err = tx.ExecContext(msg.Context(), "UPDATE accounts SET cents = cents + 100 WHERE id = 'ada'")
		return err
	})

	go func() { check(0, router.Run(context.Background())) }()
	<-router.Running()
	for range 3 {
		check(0, channel.Publish("payments", message.NewMessage("payment-1", nil)))
	}
	check(0, router.Close())
	fmt.Println(cents(db), "cents")
}

// open returns a client whose driver lets the inbox follow its transactions. The client is that of
// examples/ent.
func open() *ent.Client {
	db := pool()
	outbox := check(core.New(core.Config{Repository: check(sqloutbox.New(db, sqloutbox.Config{Dialect: core.SQLite}))}))
	ob := check(entoutbox.New(entsql.OpenDB(dialect.SQLite, db), entoutbox.Config{Outbox: outbox}))
	return ent.NewClient(ent.Driver(ob.Driver()))
}

func cents(db *ent.Client) (n int) {
	rows := check(db.QueryContext(context.Background(), "SELECT cents FROM accounts WHERE id = 'ada'"))
	defer rows.Close()
	for rows.Next() {
		check(0, rows.Scan(&n))
	}
	check(0, rows.Err())
	return n
}

// pool opens a database in memory, and makes the table.
func pool() *sql.DB {
	db := check(sql.Open("sqlite",
		"file:shop?mode=memory&cache=shared&_pragma=busy_timeout(10000)&_pragma=foreign_keys(1)&_txlock=immediate"))
	check(db.Exec("CREATE TABLE accounts (id TEXT PRIMARY KEY, cents INTEGER NOT NULL); INSERT INTO accounts VALUES " +
		"('ada', 0)"))
	return db
}

// check ends the program after an error.
func check[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
