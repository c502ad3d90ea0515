package gormoutbox_test

import (
	"context"
	"fmt"

	"gorm.io/gorm"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/gormoutbox"
)

var (
	db  *gorm.DB // postgres.Open, mysql.Open or sqlite.Open
	ctx context.Context
)

type Order struct {
	ID     int64
	Status string
	// The model records what happened to it.
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

// The row and the event commit together; then the event leaves.
func ExamplePlugin() {
	publisher := core.PublisherFunc(func(ctx context.Context, d core.Delivery) error {
		fmt.Println(d.Type, d.AggregateID)
		return nil
	})
	ob := gormoutbox.Plugin(gormoutbox.Config{Publisher: publisher, AutoCreate: true})
	if err := db.Use(ob); err != nil {
		panic(err)
	}
	go ob.Run(ctx) // in each process that relays

	order := &Order{}
	order.Place()
	if err := db.Create(order).Error; err != nil {
		panic(err)
	}
}

// Events are derived from what was stored: generated keys are filled in.
func ExampleOn() {
	ob := gormoutbox.Plugin(gormoutbox.Config{AutoCreate: true})
	gormoutbox.On(ob, func(op core.Op, o *Order) []core.Event {
		return []core.Event{{Type: "order." + op.String(), AggregateType: "order", Data: o}}
	})
	if err := db.Use(ob); err != nil {
		panic(err)
	}
}

// Statements that name no row pass too: the rows are read before they are changed.
func ExampleResolveRows() {
	ob := gormoutbox.Plugin(gormoutbox.Config{AutoCreate: true})
	gormoutbox.On(ob, func(op core.Op, o *Order) []core.Event {
		return []core.Event{{Type: "order." + op.String(), AggregateType: "order", Data: o}}
	}, gormoutbox.ResolveRows())
	if err := db.Use(ob); err != nil {
		panic(err)
	}
	// One event for each order that was open.
	if err := db.Model(&Order{}).Where("status = ?", "open").Update("status", "expired").Error; err != nil {
		panic(err)
	}
	if _, err := gorm.G[Order](db).Where("id = ?", 7).Delete(ctx); err != nil {
		panic(err)
	}
}

// A function that needs to read, or can fail, gets the context of the statement.
func ExampleOnContext() {
	ob := gormoutbox.Plugin(gormoutbox.Config{AutoCreate: true})
	gormoutbox.OnContext(ob, func(ctx context.Context, op core.Op, o *Order) ([]core.Event, error) {
		tx, err := gormoutbox.FromContext(ctx)
		if err != nil {
			return nil, err
		}
		var open int64
		if err := tx.Model(&Order{}).Where("status = ?", "placed").Count(&open).Error; err != nil {
			return nil, err
		}
		return []core.Event{{Type: "order." + op.String(), Data: map[string]any{"order": o, "open": open}}}, nil
	})
}

// The code says itself what happened.
func ExamplePublish() {
	err := db.Transaction(func(tx *gorm.DB) error {
		order := &Order{Status: "placed"}
		if err := tx.Create(order).Error; err != nil {
			return err
		}
		return gormoutbox.Publish(tx.Statement.Context, tx, core.Event{
			Type: "order.placed", AggregateType: "order", AggregateID: fmt.Sprint(order.ID), Data: order,
		})
	})
	if err != nil {
		panic(err)
	}
}

// A function that runs only after the real commit, from wherever the transaction is at hand.
func ExampleAfterCommit() {
	var wake chan struct{} // of a worker that looks for open orders
	err := db.Transaction(func(tx *gorm.DB) error {
		if err := tx.Create(&Order{Status: "open"}).Error; err != nil {
			return err
		}
		return gormoutbox.AfterCommit(tx.Statement.Context, tx, func() {
			select {
			case wake <- struct{}{}:
			default:
			}
		})
	})
	if err != nil {
		panic(err)
	}
}

// TxOf hands GORM's transaction to what knows nothing of GORM.
func ExampleTxOf() {
	var ob *core.Outbox // made with core.New
	err := db.Transaction(func(tx *gorm.DB) error {
		coreTx, err := gormoutbox.TxOf(tx.Statement.Context, tx)
		if err != nil {
			return err
		}
		_, err = ob.Publish(tx.Statement.Context, coreTx, core.Event{Type: "order.placed"})
		return err
	})
	if err != nil {
		panic(err)
	}
}

// A Transactor is how other packages, as the inbox, run work in GORM's transactions.
func ExampleTransactor() {
	transactor := gormoutbox.Transactor(db)
	err := transactor.RunInTx(ctx, func(ctx context.Context, _ core.Tx) error {
		tx, err := gormoutbox.FromContext(ctx)
		if err != nil {
			return err
		}
		return tx.Create(&Order{Status: "placed"}).Error
	})
	if err != nil {
		panic(err)
	}
}

// What finds a transaction in a context, such as an event bus of Watermill on the outbox, joins
// that of GORM.
func ExampleContext() {
	publish := func(ctx context.Context, event any) error { // bus.Publish, say
		_, ok := core.TxFromContext(ctx)
		fmt.Println(ok)
		return nil
	}
	err := db.Transaction(func(tx *gorm.DB) error {
		order := &Order{}
		if err := tx.Create(order).Error; err != nil {
			return err
		}
		return publish(gormoutbox.Context(tx.Statement.Context, tx), OrderPlaced{Order: order})
	})
	fmt.Println(err)
}
