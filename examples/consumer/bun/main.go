// Command bun is an idempotent consumer on Bun: each payment is delivered three times and credited
// once.
//
//	go run ./examples/consumer/bun
package main

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	_ "modernc.org/sqlite" // the driver

	"github.com/ormoutbox/ormoutbox/bunoutbox"
	"github.com/ormoutbox/ormoutbox/inbox"
)

func main() {
	db := open()
	channel := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, watermill.NopLogger{})
	router := check(message.NewRouter(message.RouterConfig{}, watermill.NopLogger{}))

	router.AddMiddleware(inbox.Middleware(bunoutbox.Transactor(db), "bank", inbox.CreateTables()))
	router.AddConsumerHandler("credit", "payments", channel, func(msg *message.Message) error {
		tx, err := bunoutbox.FromContext(msg.Context())
		if err != nil {
			return err
		}
		_, err = tx.NewUpdate().Model(&Account{ID: "ada"}).Set("cents = cents + 100").WherePK().Exec(msg.Context())
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

// Account is a row.
type Account struct {
	ID    string `bun:",pk"`
	Cents int
}

func open() *bun.DB { return bun.NewDB(pool(), sqlitedialect.New()) }

func cents(db *bun.DB) int {
	a := Account{ID: "ada"}
	check(0, db.NewSelect().Model(&a).WherePK().Scan(context.Background()))
	return a.Cents
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
