package gorm_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"gorm.io/driver/sqlite"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/gormoutbox"
)

type exampleOrder struct {
	ID            int64
	Status        string
	core.Recorder `gorm:"-" json:"-"`
}

type exampleOrderPlaced struct{ Order *exampleOrder }

func (exampleOrderPlaced) EventType() string { return "order.placed" }

func (o *exampleOrder) place() {
	o.Status = "placed"
	o.Record(exampleOrderPlaced{o})
}

// The three ways to publish an event, on SQLite.
func Example_gorm() {
	dir, err := os.MkdirTemp("", "outbox")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	dsn := "file:" + filepath.Join(dir, "example.db") +
		"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_txlock=immediate"
	db, err := gorm.Open(sqlite.Dialector{DriverName: "sqlite", DSN: dsn}, &gorm.Config{Logger: logger.Discard})
	if err != nil {
		panic(err)
	}
	if err := db.AutoMigrate(&exampleOrder{}); err != nil {
		panic(err)
	}

	published := make(chan string, 3)
	ob := gormoutbox.Plugin(gormoutbox.Config{
		Publisher: core.PublisherFunc(func(_ context.Context, d core.Delivery) error {
			published <- fmt.Sprintf("%s of order %s: %s", d.Type, d.AggregateID, d.Payload)
			return nil
		}),
		AutoCreate: true,
	})
	if err := db.Use(ob); err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var relay sync.WaitGroup
	relay.Go(func() {
		if err := ob.Run(ctx); err != nil {
			panic(err)
		}
	})

	// 1. The model records it.
	order := &exampleOrder{}
	order.place()
	if err := db.Create(order).Error; err != nil {
		panic(err)
	}
	fmt.Println(<-published)

	// 2. A function derives it from what was stored.
	gormoutbox.On(ob, func(op core.Op, o *exampleOrder) []core.Event {
		return []core.Event{{Type: "order." + op.String(), Data: o}}
	})
	if err := db.Model(order).Update("status", "paid").Error; err != nil {
		panic(err)
	}
	fmt.Println(<-published)

	//   3. The code publishes it. An event of a rolled-back transaction is not published.
	err = db.Transaction(func(tx *gorm.DB) error {
		if err := gormoutbox.Publish(tx.Statement.Context, tx,
			core.Event{Type: "order.lost", AggregateID: "1"}); err != nil {
			return err
		}
		return fmt.Errorf("no stock")
	})
	fmt.Println(err)
	err = db.Transaction(func(tx *gorm.DB) error {
		return gormoutbox.Publish(tx.Statement.Context, tx,
			core.Event{Type: "order.shipped", AggregateID: "1", Data: []int{1}})
	})
	fmt.Println(err)
	fmt.Println(<-published)

	cancel()
	relay.Wait()
	// Output:
	// order.placed of order 1: {"Order":{"ID":1,"Status":"placed"}}
	// order.update of order 1: {"ID":1,"Status":"paid"}
	// no stock
	// <nil>
	// order.shipped of order 1: [1]
}
