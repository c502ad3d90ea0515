// Command billing is the consumer of docs/tutorial.md: it writes one invoice for each order.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	"gorm.io/driver/sqlite"
	"gorm.io/gorm"
	_ "modernc.org/sqlite"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/gormoutbox"
	"github.com/ormoutbox/ormoutbox/inbox"
	"github.com/ormoutbox/ormoutbox/watermillbridge/amqpbridge"
)

type Invoice struct {
	ID, OrderID, Cents uint
	Paid               bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	dsn := "file:billing.db?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_txlock=immediate"
	db := must(gorm.Open(sqlite.Dialector{DriverName: "sqlite", DSN: dsn}, &gorm.Config{}))
	check(db.AutoMigrate(&Invoice{}))

	logger := watermill.NewSlogLogger(core.DefaultLogger())
	config := amqpbridge.QueueConfig("amqp://guest:guest@127.0.0.1:27672/")
	subscriber := must(amqp.NewSubscriber(config, logger))
	router := must(message.NewRouter(message.RouterConfig{}, logger))
	router.AddMiddleware(inbox.Middleware(gormoutbox.Transactor(db), "billing", inbox.CreateTables()))
	router.AddConsumerHandler("invoice", "order", subscriber, invoice)
	check(router.Run(ctx))
	var invoices, orders int64
	check(db.Model(&Invoice{}).Where("paid").Count(&invoices).Error)
	check(db.Model(&Invoice{}).Where("paid").Distinct("order_id").Count(&orders).Error)
	fmt.Println("the book has", invoices, "paid invoices of", orders, "orders")
}

func invoice(msg *message.Message) error {
	tx, err := gormoutbox.FromContext(msg.Context()) // the inbox began this transaction
	if err != nil {
		return err
	}
	var order struct{ ID, Cents uint }
	if err := json.Unmarshal(msg.Payload, &order); err != nil {
		return err
	}
	event := msg.Metadata.Get("event_type")
	fmt.Println(event, order.ID)
	if event == "order.placed" {
		return tx.Create(&Invoice{OrderID: order.ID, Cents: order.Cents}).Error
	}
	paid := tx.Model(&Invoice{}).Where("order_id = ?", order.ID).Update("paid", true)
	if paid.Error == nil && paid.RowsAffected == 0 {
		return errors.New("it is paid before it is placed")
	}
	return paid.Error
}

func must[T any](value T, err error) T { check(err); return value }

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
