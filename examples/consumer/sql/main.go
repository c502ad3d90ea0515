// Command sql is an idempotent consumer on database/sql: each payment is delivered three times and
// credited once.
//
//	go run ./examples/consumer/sql
package main

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	_ "modernc.org/sqlite" // the driver

	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/inbox"
)

func main() {
	db := open()
	channel := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, watermill.NopLogger{})
	router := check(message.NewRouter(message.RouterConfig{}, watermill.NopLogger{}))

	router.AddMiddleware(inbox.SQL(db, "bank", inbox.CreateTables()))
	router.AddConsumerHandler("credit", "payments", channel, func(msg *message.Message) error {
		tx, err := sqltx.FromContext(msg.Context())
		if err != nil {
			return err
		}
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

func open() *sql.DB { return pool() }

func cents(db *sql.DB) (n int) {
	check(0, db.QueryRow("SELECT cents FROM accounts WHERE id = 'ada'").Scan(&n))
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
