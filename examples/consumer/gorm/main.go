// Command gorm is an idempotent consumer on GORM: each payment is delivered three times and
// credited once.
//
//	go run ./examples/consumer/gorm
package main

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"gorm.io/driver/sqlite"
	"gorm.io/gorm"
	_ "modernc.org/sqlite" // the driver

	"github.com/ormoutbox/ormoutbox/gormoutbox"
	"github.com/ormoutbox/ormoutbox/inbox"
)

func main() {
	db := open()
	channel := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, watermill.NopLogger{})
	router := check(message.NewRouter(message.RouterConfig{}, watermill.NopLogger{}))

	router.AddMiddleware(inbox.Middleware(gormoutbox.Transactor(db), "bank", inbox.CreateTables()))
	router.AddConsumerHandler("credit", "payments", channel, func(msg *message.Message) error {
		tx, err := gormoutbox.FromContext(msg.Context())
		if err != nil {
			return err
		}
		return tx.Model(&Account{ID: "ada"}).Update("cents", gorm.Expr("cents + 100")).Error
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
	ID    string
	Cents int
}

func open() *gorm.DB {
	return check(gorm.Open(sqlite.Dialector{DriverName: "sqlite", Conn: pool()}, &gorm.Config{}))
}

func cents(db *gorm.DB) int {
	var a Account
	check(0, db.First(&a, "id = ?", "ada").Error)
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
