// Command quickstart is the first step of docs/tutorial.md: it stores an order and publishes its
// event, without a server.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"gorm.io/driver/sqlite"
	"gorm.io/gorm"
	_ "modernc.org/sqlite"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/gormoutbox"
	"github.com/ormoutbox/ormoutbox/watermillbridge"
)

type Order struct {
	ID, Cents uint
}

func main() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	dsn := "file:shop.db?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_txlock=immediate"
	db := must(gorm.Open(sqlite.Dialector{DriverName: "sqlite", DSN: dsn}, &gorm.Config{}))
	check(db.AutoMigrate(&Order{}))

	config := gochannel.Config{BlockPublishUntilSubscriberAck: true}
	channel := gochannel.NewGoChannel(config, watermill.NopLogger{})
	messages := must(channel.Subscribe(ctx, "order"))
	publisher := must(watermillbridge.NewPublisher(channel, watermillbridge.Config{}))

	outbox := gormoutbox.Plugin(gormoutbox.Config{Publisher: publisher, AutoCreate: true})
	check(db.Use(outbox))
	relayed := make(chan error, 1)
	go func() { relayed <- outbox.Run(ctx) }() // the relay: publishes what was committed

	order := Order{Cents: 4200}
	check(place(ctx, db, &order))
	fmt.Println("stored order", order.ID)

	msg := <-messages
	fmt.Printf("received %s: %s\n", msg.Metadata.Get("event_type"), msg.Payload)
	msg.Ack()

	stop()
	check(<-relayed)
}

func place(ctx context.Context, db *gorm.DB, order *Order) error {
	return db.Transaction(func(tx *gorm.DB) error {
		if err := tx.Create(order).Error; err != nil {
			return err
		}
		return gormoutbox.Publish(ctx, tx, core.Event{ // one more row of this transaction
			Type: "order.placed", AggregateType: "order", AggregateID: fmt.Sprint(order.ID), Data: order,
		})
	})
}

func must[T any](value T, err error) T { check(err); return value }

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
