package bunoutbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/uptrace/bun"
	bundialect "github.com/uptrace/bun/dialect"
	"github.com/uptrace/bun/dialect/feature"
	"github.com/uptrace/bun/schema"

	"github.com/ormoutbox/ormoutbox/bunoutbox"
	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/relay"
)

type Order struct {
	bun.BaseModel `bun:"table:orders"`

	ID     int64 `bun:",pk,autoincrement"`
	Status string
	// The Recorder keeps the events of the order.
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

// printed is a publisher that prints.
var printed = core.PublisherFunc(func(_ context.Context, d core.Delivery) error {
	fmt.Println(strings.TrimSpace(d.Type + " " + d.AggregateID + " " + string(d.Payload)))
	return nil
})

// inMemory is bunoutbox.Config{Publisher: p, AutoCreate: true}, with tables in memory.
func inMemory(p core.Publisher) bunoutbox.Config {
	ob, err := core.New(core.Config{Repository: outboxtest.NewRepository(), Publisher: p, Relay: relay.Config{}})
	must(err)
	return bunoutbox.Config{Outbox: ob}
}

// returning is a dialect without a database. A program uses pgdialect.New().
type returning struct{ *named }

func newDialect() schema.Dialect {
	d := returning{&named{name: bundialect.PG}}
	d.tables = schema.NewTables(d)
	return d
}

func (returning) Features() feature.Feature { return feature.Returning | feature.InsertReturning }

// memory is a database that accepts every statement and keeps nothing. It is opened as by
// sqltx.Open.
func memory() *bun.DB {
	pool, err := outboxtest.OpenDB(core.Postgres)
	must(err)
	return bun.NewDB(pool, newDialect())
}

// example opens a database with an outbox that prints what it publishes.
func example() (*bun.DB, *bunoutbox.Outbox) {
	ob, err := bunoutbox.New(memory(), inMemory(printed))
	must(err)
	return ob.DB(), ob
}

// must stops an example after an error.
func must(errs ...error) {
	if err := errors.Join(errs...); err != nil {
		panic(err)
	}
}

// The row and the event commit together. Then the event is published.
func ExampleNew() {
	ob, err := bunoutbox.New(memory(), inMemory(printed)) // bunoutbox.Config{Publisher: publisher, AutoCreate: true}
	must(err)
	db := ob.DB() // captures events: work with this one

	ctx := context.Background()
	order := &Order{}
	order.Place()
	must(db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		_, err := tx.NewInsert().Model(order).Exec(ctx)
		return err
	}))
	must(ob.Drain(ctx)) // a service calls go ob.Run(ctx) once
	// Output: order.placed 1 {"Order":{"ID":1,"Status":"placed"}}
}

// Open takes a driver and a DSN. It returns a database whose events are captured, and its outbox.
func ExampleOpen() {
	publisher := printed
	ctx := context.Background()
	config := bunoutbox.Config{Publisher: publisher, AutoCreate: true}
	db, ob, err := bunoutbox.Open(ctx, "pgx", "postgres://...", newDialect(), config)
	if err != nil {
		fmt.Println(err) // this program does not import pgx
		return
	}
	defer db.Close()
	go ob.Run(ctx) // in each process that relays
	// Output: sqltx: open the pool: sql: unknown driver "pgx" (forgotten import?)
}

// OpenConnector takes the connector of a driver that is configured by code.
func ExampleOpenConnector() {
	ctx := context.Background()
	db, ob, err := bunoutbox.OpenConnector(ctx, nowhere{}, newDialect(),
		inMemory(printed)) // pgdriver.NewConnector(...)
	must(err)
	defer db.Close()
	fmt.Println(ob.DB() == db)
	// Output: true
}

// On derives events from the stored model, which has its generated key.
func ExampleOn() {
	_, ob := example()
	bunoutbox.On(ob, func(op core.Op, o *Order) []core.Event {
		return []core.Event{{Type: "order." + op.String(), AggregateType: "order", Data: o}}
	})
	ctx := context.Background()
	must(ob.RunInTx(ctx, func(ctx context.Context, tx bun.Tx) error {
		_, err := tx.NewInsert().Model(&Order{Status: "placed"}).Exec(ctx)
		return err
	}))
	must(ob.Drain(ctx))
	// Output: order.create 1 {"ID":1,"Status":"placed"}
}

// Statements that name no row are told too: the function is called for each row that they changed.
// A statement without a transaction gets one of its own.
func ExampleOn_condition() {
	db, ob := example()
	bunoutbox.On(ob, func(op core.Op, o *Order) []core.Event {
		return []core.Event{{Type: "order." + op.String(), Data: o}}
	})
	ctx := context.Background()
	_, err := db.NewUpdate().Model((*Order)(nil)).Set("status = 'expired'").Where("status = 'open'").Exec(ctx)
	must(err, ob.Drain(ctx))
	// On a database that keeps its rows, this prints
	// order.update 1 {"ID":1,"Status":"expired"}
	// order.update 3 {"ID":3,"Status":"expired"}
}

// OnAll gets the rows of every model, for an audit trail for example.
func ExampleOnAll() {
	db, ob := example()
	bunoutbox.OnAll(ob, func(_ context.Context, op core.Op, model any) ([]core.Event, error) {
		return []core.Event{{Type: fmt.Sprintf("%s %T", op, model), Data: model}}, nil
	}, &Invoice{})
	ctx := context.Background()
	_, err := db.NewInsert().Model(&Order{Status: "placed"}).Exec(ctx)
	must(err, ob.Drain(ctx))
	// Output: create *bunoutbox_test.Order 1 {"ID":1,"Status":"placed"}
}

// A function that reads other data, or can fail, gets the context of the statement.
func ExampleOnContext() {
	_, ob := example()
	bunoutbox.OnContext(ob, func(ctx context.Context, op core.Op, o *Order) ([]core.Event, error) {
		tx, err := bunoutbox.FromContext(ctx) // it reads in the same transaction
		if err != nil {
			return nil, err
		}
		_, in := any(tx).(bun.Tx)
		return []core.Event{{Type: "order." + op.String(), Data: map[string]any{"order": o, "in_tx": in}}}, nil
	})
	ctx := context.Background()
	must(ob.RunInTx(ctx, func(ctx context.Context, tx bun.Tx) error {
		_, err := tx.NewInsert().Model(&Order{Status: "placed"}).Exec(ctx)
		return err
	}))
	must(ob.Drain(ctx))
	// Output: order.create 1 {"in_tx":true,"order":{"ID":1,"Status":"placed"}}
}

// The code publishes the event itself. An event of a rolled-back transaction is not published.
func ExampleOutbox_Publish() {
	ctx := context.Background()
	db, ob := example()
	fmt.Println(db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		return ob.Publish(ctx, tx, core.Event{Type: "order.placed", AggregateID: "7", Data: 4200})
	}))
	fmt.Println(db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		return errors.Join(ob.Publish(ctx, tx, core.Event{Type: "order.paid"}), errors.New("no money"))
	}))
	fmt.Println(errors.Is(ob.Publish(ctx, db, core.Event{Type: "order.lost"}), core.ErrNoTransaction))
	must(ob.Drain(ctx))
	// Output:
	// <nil>
	// no money
	// true
	// order.placed 7 4200
}

// On a pool that was opened without sqltx.Connector, RunInTx tracks the transaction. A call within
// a call is a savepoint.
func ExampleOutbox_RunInTx() {
	_, ob := example()
	ctx := context.Background()
	must(ob.RunInTx(ctx, func(ctx context.Context, tx bun.Tx) error {
		gift := ob.RunInTx(ctx, func(ctx context.Context, tx bun.Tx) error {
			return errors.Join(ob.Publish(ctx, tx, core.Event{Type: "gift.added"}), errors.New("no gifts left"))
		})
		fmt.Println(gift)
		return ob.Publish(ctx, tx, core.Event{Type: "order.placed", AggregateID: "7"})
	}))
	must(ob.Drain(ctx))
	// Output:
	// no gifts left
	// order.placed 7
}

// RunInTxOptions takes options of database/sql for a new transaction.
func ExampleOutbox_RunInTxOptions() {
	_, ob := example()
	ctx := context.Background()
	options := &sql.TxOptions{} // for example Isolation: sql.LevelSerializable
	must(ob.RunInTxOptions(ctx, options, func(ctx context.Context, tx bun.Tx) error {
		return ob.Publish(ctx, tx, core.Event{Type: "order.placed", AggregateID: "7"})
	}))
	must(ob.Drain(ctx))
	// Output: order.placed 7
}

// Any other *bun.DB captures events when it has the hook.
func ExampleOutbox_Hook() {
	plain := memory()
	ob, err := bunoutbox.New(plain, inMemory(printed))
	must(err)
	db := plain.WithQueryHook(ob.Hook()) // plain is unchanged

	ctx := context.Background()
	order := &Order{}
	order.Place()
	_, err = db.NewInsert().Model(order).Exec(ctx)
	must(err, ob.Drain(ctx))
	// Output: order.placed 1 {"Order":{"ID":1,"Status":"placed"}}
}

// DB is the database given to New, with the hook.
func ExampleOutbox_DB() {
	plain := memory()
	ob, err := bunoutbox.New(plain, inMemory(printed))
	must(err)
	fmt.Println(ob.DB().DB == plain.DB, ob.DB() == plain)
	// Output: true false
}

// AfterCommit runs a function only after the real commit.
func ExampleAfterCommit() {
	db, _ := example()
	must(db.RunInTx(context.Background(), nil, func(ctx context.Context, tx bun.Tx) error {
		err := bunoutbox.AfterCommit(ctx, tx, func() { fmt.Println("wake the worker") })
		fmt.Println("in the transaction")
		return err
	}))
	// Output:
	// in the transaction
	// wake the worker
}

// TxOf passes Bun's transaction to code that does not import Bun.
func ExampleTxOf() {
	db, ob := example()
	must(db.RunInTx(context.Background(), nil, func(ctx context.Context, tx bun.Tx) error {
		own, err := bunoutbox.TxOf(ctx, tx)
		if err != nil {
			return err
		}
		fmt.Println(own.Dialect(), own.Tracked())
		_, err = ob.Outbox().Publish(ctx, own, core.Event{Type: "order.placed"})
		return err
	}))
	// Output: postgres true
}

// Code that finds a transaction in a context, such as an event bus of Watermill, joins Bun's
// transaction.
func ExampleContext() {
	db, ob := example()
	publish := func(ctx context.Context, e core.Event) error { // for example bus.Publish
		_, err := ob.Outbox().Publish(ctx, nil, e)
		return err
	}
	ctx := context.Background()
	must(db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		return publish(bunoutbox.Context(ctx, tx), core.Event{Type: "order.placed", AggregateID: "7"})
	}))
	must(ob.Drain(ctx))
	// Output: order.placed 7
}

// Other packages, such as the inbox, run work in Bun's transactions through a Transactor.
func ExampleTransactor() {
	db, ob := example()
	ctx := context.Background()
	must(bunoutbox.Transactor(db).RunInTx(ctx, func(ctx context.Context, _ core.Tx) error {
		tx, err := bunoutbox.FromContext(ctx)
		if err != nil {
			return err
		}
		return ob.Publish(ctx, tx, core.Event{Type: "order.placed", AggregateID: "7"})
	}))
	must(ob.Drain(ctx))
	// Output: order.placed 7
}

// FromContext finds the transaction of RunInTx in any context that is derived from it.
func ExampleFromContext() {
	_, ob := example()
	store := func(ctx context.Context, o *Order) error {
		tx, err := bunoutbox.FromContext(ctx)
		if err != nil {
			return err
		}
		_, err = tx.NewInsert().Model(o).Exec(ctx)
		return err
	}
	ctx := context.Background()
	fmt.Println(errors.Is(store(ctx, &Order{}), core.ErrNoTransaction))
	fmt.Println(ob.RunInTx(ctx, func(ctx context.Context, _ bun.Tx) error { return store(ctx, &Order{}) }))
	// Output:
	// true
	// <nil>
}

// Invoice cannot be inserted without the outbox.
type Invoice struct {
	ID    int64 `bun:",pk,autoincrement"`
	Cents int64
}

func (*Invoice) BeforeInsert(ctx context.Context, q *bun.InsertQuery) error {
	return bunoutbox.BeforeInsert(ctx, q)
}

// Without the outbox, a *bun.DB cannot store a model with this hook.
func ExampleBeforeInsert() {
	ctx := context.Background()
	err := memory().RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		_, err := tx.NewInsert().Model(&Invoice{Cents: 4200}).Exec(ctx)
		return err
	})
	fmt.Println(errors.Is(err, core.ErrNotInstalled))
	// Output: true
}
