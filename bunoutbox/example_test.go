package bunoutbox_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/schema"

	"github.com/ormoutbox/ormoutbox/bunoutbox"
	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

var (
	connector driver.Connector // of pgx, pgdriver, go-sql-driver/mysql or modernc.org/sqlite
	dialect   schema.Dialect   // pgdialect.New(), mysqldialect.New() or sqlitedialect.New()
	db        *bun.DB
	ob        *bunoutbox.Outbox
	ctx       context.Context
)

type Order struct {
	bun.BaseModel `bun:"table:orders"`

	ID     int64 `bun:",pk,autoincrement"`
	Status string
	// The model records what happened to it.
	core.Recorder `bun:"-" json:"-"`
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
func ExampleNew() {
	publisher := core.PublisherFunc(func(ctx context.Context, d core.Delivery) error {
		fmt.Println(d.Type, d.AggregateID)
		return nil
	})
	db := bun.NewDB(sql.OpenDB(sqltx.Connector(connector, "")), dialect)
	ob, err := bunoutbox.New(db, bunoutbox.Config{Publisher: publisher, AutoCreate: true})
	if err != nil {
		panic(err)
	}
	db = ob.DB()   // captures events: work with this one
	go ob.Run(ctx) // in each process that relays

	order := &Order{}
	order.Place()
	err = db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		_, err := tx.NewInsert().Model(order).Exec(ctx)
		return err
	})
	if err != nil {
		panic(err)
	}
}

// One call from a driver and a DSN to a database whose events are captured, and its outbox.
func ExampleOpen() {
	publisher := core.PublisherFunc(func(ctx context.Context, d core.Delivery) error {
		fmt.Println(d.Type, d.AggregateID)
		return nil
	})
	db, ob, err := bunoutbox.Open(ctx, "pgx", "postgres://...", dialect,
		bunoutbox.Config{Publisher: publisher, AutoCreate: true})
	if err != nil {
		panic(err)
	}
	defer db.Close()
	go ob.Run(ctx) // in each process that relays

	err = db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		order := &Order{}
		order.Place()
		_, err := tx.NewInsert().Model(order).Exec(ctx)
		return err
	})
	if err != nil {
		panic(err)
	}
}

// A driver that is configured by code is given as its connector.
func ExampleOpenConnector() {
	db, ob, err := bunoutbox.OpenConnector(ctx, connector, dialect, bunoutbox.Config{AutoCreate: true})
	if err != nil {
		panic(err)
	}
	defer db.Close()
	_ = ob.Outbox()
}

// Events are derived from what was stored: generated keys are filled in.
func ExampleOn() {
	bunoutbox.On(ob, func(op core.Op, o *Order) []core.Event {
		return []core.Event{{Type: "order." + op.String(), AggregateType: "order", Data: o}}
	})
}

// Statements that do not say which rows they change are captured too, row by row.
func ExampleResolveRows() {
	bunoutbox.On(ob, func(op core.Op, o *Order) []core.Event {
		return []core.Event{{Type: "order." + op.String(), AggregateType: "order", Data: o}}
	}, bunoutbox.ResolveRows())
	err := db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		_, err := tx.NewUpdate().Model((*Order)(nil)).Set("status = 'expired'").Where("status = ?", "placed").Exec(ctx)
		return err
	})
	if err != nil {
		panic(err)
	}
}

// A function that needs to read, or can fail, gets the context of the statement.
func ExampleOnContext() {
	bunoutbox.OnContext(ob, func(ctx context.Context, op core.Op, o *Order) ([]core.Event, error) {
		tx, err := bunoutbox.FromContext(ctx)
		if err != nil {
			return nil, err
		}
		open, err := tx.NewSelect().Model((*Order)(nil)).Where("status = ?", "placed").Count(ctx)
		if err != nil {
			return nil, err
		}
		return []core.Event{{Type: "order." + op.String(), Data: map[string]any{"order": o, "open": open}}}, nil
	})
}

// The code says itself what happened.
func ExampleOutbox_Publish() {
	err := db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		order := &Order{Status: "placed"}
		if _, err := tx.NewInsert().Model(order).Exec(ctx); err != nil {
			return err
		}
		return ob.Publish(ctx, tx, core.Event{
			Type: "order.placed", AggregateType: "order", AggregateID: fmt.Sprint(order.ID), Data: order,
		})
	})
	if err != nil {
		panic(err)
	}
}

// On a pool that was opened without sqltx.Connector, RunInTx follows the transaction.
func ExampleOutbox_RunInTx() {
	err := ob.RunInTx(ctx, func(ctx context.Context, tx bun.Tx) error {
		if _, err := tx.NewDelete().Model(&Order{ID: 7}).WherePK().Exec(ctx); err != nil {
			return err
		}
		return ob.Publish(ctx, tx, core.Event{Type: "order.deleted", AggregateType: "order", AggregateID: "7"})
	})
	if err != nil {
		panic(err)
	}
}

// TxOf hands Bun's transaction to what knows nothing of Bun.
func ExampleTxOf() {
	var other *core.Outbox // made with core.New
	err := db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		own, err := bunoutbox.TxOf(ctx, tx)
		if err != nil {
			return err
		}
		_, err = other.Publish(ctx, own, core.Event{Type: "order.placed"})
		return err
	})
	if err != nil {
		panic(err)
	}
}

// A Transactor is how other packages, as the inbox, run work in Bun's transactions.
func ExampleTransactor() {
	transactor := bunoutbox.Transactor(db)
	err := transactor.RunInTx(ctx, func(ctx context.Context, _ core.Tx) error {
		tx, err := bunoutbox.FromContext(ctx)
		if err != nil {
			return err
		}
		_, err = tx.NewInsert().Model(&Order{Status: "placed"}).Exec(ctx)
		return err
	})
	if err != nil {
		panic(err)
	}
}

// Invoice fails its inserts when their events cannot be written.
type Invoice struct {
	ID int64 `bun:",pk,autoincrement"`
}

func (*Invoice) BeforeInsert(ctx context.Context, q *bun.InsertQuery) error {
	return bunoutbox.BeforeInsert(ctx, q)
}

func (*Invoice) AfterInsert(ctx context.Context, q *bun.InsertQuery) error {
	return bunoutbox.AfterInsert(ctx, q)
}

// Model hooks are one line each.
func ExampleAfterInsert() {
	var _ interface {
		bun.BeforeInsertHook
		bun.AfterInsertHook
	} = (*Invoice)(nil)
}
