// Command shop is the fourth step of docs/tutorial.md: it takes orders until it is interrupted or
// killed.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"time"

	"gorm.io/driver/sqlite"
	"gorm.io/gorm"
	_ "modernc.org/sqlite"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/gormoutbox"
	"github.com/ormoutbox/ormoutbox/watermillbridge/amqpbridge"
)

type Order struct {
	ID, Cents uint
	Paid      bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	dsn := "file:shop.db?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_txlock=immediate"
	db := must(gorm.Open(sqlite.Dialector{DriverName: "sqlite", DSN: dsn}, &gorm.Config{}))
	check(db.AutoMigrate(&Order{}))

	config := amqpbridge.QueueConfig("amqp://guest:guest@127.0.0.1:27672/")
	publisher := must(amqpbridge.NewPublisher(amqpbridge.Config{AMQP: config, DeclareQueues: true}))

	outbox := gormoutbox.Plugin(gormoutbox.Config{Publisher: publisher, AutoCreate: true})
	check(db.Use(outbox))
	relayed := make(chan error, 1)
	relaying, end := context.WithCancel(context.Background())
	go func() { relayed <- outbox.Run(relaying) }()

	for ctx.Err() == nil { // until Ctrl-C
		order := Order{Cents: 4200}
		check(place(context.Background(), db, &order))
		check(pay(context.Background(), db, &order))
		fmt.Println("stored order", order.ID)
		time.Sleep(10 * time.Millisecond)
	}

	end() // after the last commit
	check(<-relayed)
	check(publisher.Close(context.Background()))
	var orders int64
	check(db.Model(&Order{}).Where("paid").Count(&orders).Error)
	fmt.Println("the book has", orders, "paid orders")
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

func pay(ctx context.Context, db *gorm.DB, order *Order) error {
	return db.Transaction(func(tx *gorm.DB) error {
		order.Paid = true
		if err := tx.Save(order).Error; err != nil {
			return err
		}
		return gormoutbox.Publish(ctx, tx, core.Event{
			Type: "order.paid", AggregateType: "order", AggregateID: fmt.Sprint(order.ID), Data: order,
		})
	})
}

func must[T any](value T, err error) T { check(err); return value }

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
