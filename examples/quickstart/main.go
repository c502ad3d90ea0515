// Command quickstart is the program of the first page: it stores an order and publishes its event,
// without a server.
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

type Order struct{ ID, Cents uint }

// AfterCreate runs in the transaction that stores the order, and so does Publish.
func (o *Order) AfterCreate(tx *gorm.DB) error {
	return gormoutbox.Publish(tx.Statement.Context, tx, core.Event{
		Type: "order.placed", AggregateType: "order", AggregateID: fmt.Sprint(o.ID), Data: o,
	})
}

func main() {
	ctx, stop := context.WithCancel(context.Background())
	dsn := "file:shop.db?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_txlock=immediate"
	db := must(gorm.Open(sqlite.Dialector{DriverName: "sqlite", DSN: dsn}, &gorm.Config{}))
	check(db.AutoMigrate(&Order{}))

	channel := gochannel.NewGoChannel(gochannel.Config{}, watermill.NopLogger{}) // or a broker
	messages := must(channel.Subscribe(ctx, "order"))
	publisher := must(watermillbridge.NewPublisher(channel, watermillbridge.Config{}))

	outbox := gormoutbox.Plugin(gormoutbox.Config{Publisher: publisher, AutoCreate: true})
	check(db.Use(outbox))
	relayed := make(chan error, 1)
	go func() { relayed <- outbox.Run(ctx) }() // the relay: publishes what was committed

	order := Order{Cents: 4200}
	check(db.Create(&order).Error) // one transaction: the order and its event
	fmt.Println("stored order", order.ID)
	msg := <-messages
	fmt.Printf("received %s: %s\n", msg.Metadata.Get("event_type"), msg.Payload)
	msg.Ack()
	stop()
	check(<-relayed)
}

func must[T any](value T, err error) T { check(err); return value }

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
