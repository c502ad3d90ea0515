package gormoutbox_test

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/gormoutbox"
)

type Order struct {
	ID     int64
	Status string
	// The Recorder keeps the events of the order.
	core.Recorder `gorm:"-" json:"-"`
}

type OrderPlaced struct {
	Order *Order
}

func (OrderPlaced) EventType() string { return "order.placed" }

func (o *Order) Place() {
	o.Status = "placed"
	o.Record(OrderPlaced{Order: o})
}

// Invoice publishes in its own hook.
type Invoice struct{ ID, Cents int64 }

// AfterCreate runs in the transaction that stores the invoice.
func (i *Invoice) AfterCreate(tx *gorm.DB) error {
	return gormoutbox.Publish(tx.Statement.Context, tx, core.Event{
		Type: "invoice.issued", AggregateType: "invoice", AggregateID: fmt.Sprint(i.ID), Data: i,
	})
}

// printed is a publisher that prints.
var printed = core.PublisherFunc(func(_ context.Context, d core.Delivery) error {
	fmt.Println(strings.TrimSpace(d.Type + " " + d.AggregateID + " " + string(d.Payload)))
	return nil
})

// inMemory is gormoutbox.Config{Publisher: p, AutoCreate: true}, with tables in memory.
func inMemory(p core.Publisher) gormoutbox.Config {
	ob, err := core.New(core.Config{Repository: outboxtest.NewRepository(), Publisher: p, Relay: relay.Config{}})
	must(err)
	return gormoutbox.Config{Outbox: ob}
}

// memory stands for postgres.Open(dsn): a database that accepts every statement and keeps nothing.
func memory() gorm.Dialector { return dialector{named{name: "postgres"}} }

type dialector struct{ named }

func (d dialector) Initialize(db *gorm.DB) error {
	pool, err := outboxtest.OpenDB(core.Postgres)
	if err != nil {
		return err
	}
	db.ConnPool = pool
	db.Logger = logger.Discard
	return d.named.Initialize(db)
}

// example opens a database with an outbox that prints what it publishes.
func example() (*gorm.DB, *gormoutbox.Outbox) {
	db, ob, err := gormoutbox.Open(context.Background(), memory(), inMemory(printed))
	must(err)
	return db, ob
}

// must stops an example after an error.
func must(errs ...error) {
	if err := errors.Join(errs...); err != nil {
		panic(err)
	}
}

// The row and the event commit together. Then the event is published.
func ExamplePlugin() {
	ctx := context.Background()
	db, err := gorm.Open(memory(), &gorm.Config{}) // postgres.Open(dsn)
	must(err)
	ob := gormoutbox.Plugin(inMemory(printed)) // gormoutbox.Config{Publisher: publisher, AutoCreate: true}
	must(db.Use(ob))

	order := &Order{}
	order.Place()
	must(db.Create(order).Error)

	must(ob.Drain(ctx)) // a service calls go ob.Run(ctx) once
	// Output: order.placed 1 {"Order":{"ID":1,"Status":"placed"}}
}

// One database can have two outboxes, each with its own tables.
func ExampleNamedPlugin() {
	db, orders := example()
	audit := gormoutbox.NamedPlugin("audit", inMemory(printed)) // with Prefix: "audit_"
	must(db.Use(audit))

	ctx := context.Background()
	must(db.Transaction(func(tx *gorm.DB) error {
		return errors.Join(
			orders.Publish(ctx, tx, core.Event{Type: "order.placed", AggregateID: "7"}),
			audit.Publish(ctx, tx, core.Event{Type: "order.seen", AggregateID: "7"}),
		)
	}))
	must(audit.Drain(ctx), orders.Drain(ctx))
	// Output:
	// order.seen 7
	// order.placed 7
}

// New is Plugin and db.Use in one call.
func ExampleNew() {
	db, err := gorm.Open(memory(), &gorm.Config{}) // postgres.Open(dsn)
	must(err)
	ob, err := gormoutbox.New(db, inMemory(printed)) // gormoutbox.Config{Publisher: publisher, AutoCreate: true}
	must(err)
	must(db.Create(&Invoice{Cents: 4200}).Error, ob.Drain(context.Background()))
	// Output: invoice.issued 1 {"ID":1,"Cents":4200}
}

// Open is gorm.Open and New in one call.
func ExampleOpen() {
	ctx := context.Background()
	db, ob, err := gormoutbox.Open(ctx, memory(), inMemory(printed)) // postgres.Open(dsn)
	must(err)
	must(db.Create(&Invoice{Cents: 4200}).Error, ob.Drain(ctx))
	// Output: invoice.issued 1 {"ID":1,"Cents":4200}
}

// On derives events from the stored model, which has its generated key.
func ExampleOn() {
	db, ob := example()
	gormoutbox.On(ob, func(op core.Op, o *Order) []core.Event {
		return []core.Event{{Type: "order." + op.String(), AggregateType: "order", Data: o}}
	})
	must(db.Create(&[]Order{{Status: "open"}, {Status: "paid"}}).Error)
	must(ob.Drain(context.Background()))
	// Unordered output:
	// order.create 1 {"ID":1,"Status":"open"}
	// order.create 2 {"ID":2,"Status":"paid"}
}

// Statements that name no row are told too: the function is called for each row that they changed.
func ExampleOn_condition() {
	db, ob := example()
	must(db.Create(&[]Order{{Status: "open"}, {Status: "paid"}, {Status: "open"}}).Error)
	gormoutbox.On(ob, func(op core.Op, o *Order) []core.Event {
		return []core.Event{{Type: "order." + op.String(), Data: o}}
	})
	must(db.Model(&Order{}).Where("status = ?", "open").Update("status", "expired").Error)
	must(ob.Drain(context.Background()))
	// On a database that keeps its rows, this prints
	// order.update 1 {"ID":1,"Status":"expired"}
	// order.update 3 {"ID":3,"Status":"expired"}
}

// A function that reads other data, or can fail, gets the context of the statement.
func ExampleOnContext() {
	db, ob := example()
	gormoutbox.OnContext(ob, func(ctx context.Context, op core.Op, o *Order) ([]core.Event, error) {
		tx, err := gormoutbox.FromContext(ctx)
		if err != nil {
			return nil, err
		}
		var open int64
		if err := tx.Model(&Order{}).Where("status = ?", "open").Count(&open).Error; err != nil {
			return nil, err
		}
		return []core.Event{{Type: "order." + op.String(), Data: map[string]any{"order": o, "open": open}}}, nil
	})
	must(db.Create(&Order{Status: "placed"}).Error, ob.Drain(context.Background()))
	// Output: order.create 1 {"open":0,"order":{"ID":1,"Status":"placed"}}
}

// The code publishes the event itself. An event of a rolled-back transaction is not published.
func ExamplePublish() {
	ctx := context.Background()
	db, ob := example()
	order := &Order{Status: "placed"}
	err := db.Transaction(func(tx *gorm.DB) error {
		if err := tx.Create(order).Error; err != nil {
			return err
		}
		return gormoutbox.Publish(ctx, tx, core.Event{Type: "order.placed", AggregateID: fmt.Sprint(order.ID)})
	})
	fmt.Println(err)
	err = db.Transaction(func(tx *gorm.DB) error {
		return errors.Join(gormoutbox.Publish(ctx, tx, core.Event{Type: "order.paid"}), errors.New("no money"))
	})
	fmt.Println(err)
	fmt.Println(gormoutbox.Publish(ctx, db, core.Event{Type: "order.lost"}) != nil) // no transaction
	must(ob.Drain(ctx))
	// Output:
	// <nil>
	// no money
	// true
	// order.placed 1
}

// AfterCommit runs a function only after the real commit. Any code that has the transaction may
// call it.
func ExampleAfterCommit() {
	db, _ := example()
	ctx := context.Background()
	must(db.Transaction(func(tx *gorm.DB) error {
		if err := tx.Create(&Order{Status: "open"}).Error; err != nil {
			return err
		}
		err := gormoutbox.AfterCommit(ctx, tx, func() { fmt.Println("wake the worker") })
		fmt.Println("in the transaction")
		return err
	}))
	// Output:
	// in the transaction
	// wake the worker
}

// TxOf passes GORM's transaction to code that does not import GORM.
func ExampleTxOf() {
	db, ob := example()
	ctx := context.Background()
	must(db.Transaction(func(tx *gorm.DB) error {
		own, err := gormoutbox.TxOf(ctx, tx)
		if err != nil {
			return err
		}
		fmt.Println(own.Dialect(), own.Tracked())
		_, err = ob.Outbox().Publish(ctx, own, core.Event{Type: "order.placed"})
		return err
	}))
	// Output: postgres true
}

// Other packages, such as the inbox, run work in GORM's transactions through a Transactor.
func ExampleTransactor() {
	db, ob := example()
	transactor := gormoutbox.Transactor(db)
	err := transactor.RunInTx(context.Background(), func(ctx context.Context, _ core.Tx) error {
		tx, err := gormoutbox.FromContext(ctx)
		if err != nil {
			return err
		}
		return tx.Create(&Invoice{Cents: 4200}).Error
	})
	fmt.Println(err)
	must(ob.Drain(context.Background()))
	// Output:
	// <nil>
	// invoice.issued 1 {"ID":1,"Cents":4200}
}

// FromContext finds the transaction of a Transactor in any context that is derived from it.
func ExampleFromContext() {
	db, _ := example()
	store := func(ctx context.Context, o *Order) error {
		tx, err := gormoutbox.FromContext(ctx)
		if err != nil {
			return err
		}
		return tx.Create(o).Error
	}
	ctx := context.Background()
	fmt.Println(errors.Is(store(ctx, &Order{}), core.ErrNoTransaction))
	fmt.Println(gormoutbox.Transactor(db).RunInTx(ctx, func(ctx context.Context, _ core.Tx) error {
		return store(ctx, &Order{})
	}))
	// Output:
	// true
	// <nil>
}

// Code that finds a transaction in a context, such as an event bus of Watermill, joins GORM's
// transaction.
func ExampleContext() {
	db, ob := example()
	publish := func(ctx context.Context, e core.Event) error { // for example bus.Publish
		_, err := ob.Outbox().Publish(ctx, nil, e)
		return err
	}
	ctx := context.Background()
	must(db.Transaction(func(tx *gorm.DB) error {
		return publish(gormoutbox.Context(ctx, tx), core.Event{Type: "order.placed", AggregateID: "7"})
	}))
	must(ob.Drain(ctx))
	// Output: order.placed 7
}

// With several outboxes, the method publishes through the one that it is called on.
func ExampleOutbox_Publish() {
	ctx := context.Background()
	db, ob := example()
	must(db.Transaction(func(tx *gorm.DB) error {
		return ob.Publish(ctx, tx, core.Event{Type: "order.placed", AggregateID: "7", Data: 4200})
	}))
	must(ob.Drain(ctx))
	// Output: order.placed 7 4200
}
