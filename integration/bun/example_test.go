package bun_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	"modernc.org/sqlite"

	"github.com/ormoutbox/ormoutbox/bunoutbox"
	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

type exampleBunOrder struct {
	bun.BaseModel `bun:"table:orders"`

	ID            int64 `bun:",pk,autoincrement"`
	Status        string
	core.Recorder `bun:"-" json:"-"`
}

type exampleBunOrderPlaced struct{ Order *exampleBunOrder }

func (exampleBunOrderPlaced) EventType() string { return "order.placed" }

func (o *exampleBunOrder) place() {
	o.Status = "placed"
	o.Record(exampleBunOrderPlaced{o})
}

// exampleBunDB opens a database file that the returned function removes.
func exampleBunDB(models ...any) (*bun.DB, func()) {
	dir, err := os.MkdirTemp("", "outbox")
	if err != nil {
		panic(err)
	}
	connector, err := sqlite.NewConnector("file:" + filepath.Join(dir, "example.db") +
		"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_txlock=immediate")
	if err != nil {
		panic(err)
	}
	db := bun.NewDB(sql.OpenDB(sqltx.Connector(connector, "")), sqlitedialect.New())
	for _, model := range models {
		if _, err := db.NewCreateTable().Model(model).Exec(context.Background()); err != nil {
			panic(err)
		}
	}
	return db, func() { _ = errors.Join(db.Close(), os.RemoveAll(dir)) }
}

// exampleBunOutbox makes an outbox that prints the events that it publishes, and a function that
// publishes all committed events.
func exampleBunOutbox(db *bun.DB) (ob *bunoutbox.Outbox, drain func()) {
	ob, err := bunoutbox.New(db, bunoutbox.Config{
		Publisher: core.PublisherFunc(func(_ context.Context, d core.Delivery) error {
			fmt.Printf("%s of order %s: %s\n", d.Type, d.AggregateID, d.Payload)
			return nil
		}),
		AutoCreate: true,
	})
	if err != nil {
		panic(err)
	}
	return ob, func() {
		if err := ob.Drain(context.Background()); err != nil {
			panic(err)
		}
	}
}

// The three ways to publish an event, on SQLite, with a relay that runs beside.
func Example_bun() {
	db, remove := exampleBunDB((*exampleBunOrder)(nil))
	defer remove()
	published := make(chan string, 3)
	ob, err := bunoutbox.New(db, bunoutbox.Config{
		Publisher: core.PublisherFunc(func(_ context.Context, d core.Delivery) error {
			published <- fmt.Sprintf("%s of order %s: %s", d.Type, d.AggregateID, d.Payload)
			return nil
		}),
		AutoCreate: true,
	})
	if err != nil {
		panic(err)
	}
	db = db.WithQueryHook(ob.Hook())
	ctx, cancel := context.WithCancel(context.Background())
	var relay sync.WaitGroup
	relay.Go(func() {
		if err := ob.Run(ctx); err != nil {
			panic(err)
		}
	})

	// 1. The model records it.
	order := &exampleBunOrder{}
	order.place()
	err = db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		_, err := tx.NewInsert().Model(order).Exec(ctx)
		return err
	})
	if err != nil {
		panic(err)
	}
	fmt.Println(<-published)

	// 2. A function derives it from what was stored.
	bunoutbox.On(ob, func(op core.Op, o *exampleBunOrder) []core.Event {
		return []core.Event{{Type: "order." + op.String(), Data: o}}
	})
	order.Status = "paid"
	err = db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		_, err := tx.NewUpdate().Model(order).Column("status").WherePK().Exec(ctx)
		return err
	})
	if err != nil {
		panic(err)
	}
	fmt.Println(<-published)

	//   3. The code publishes it. An event of a rolled-back transaction is not published.
	err = db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		if err := ob.Publish(ctx, tx, core.Event{Type: "order.lost", AggregateID: "1"}); err != nil {
			return err
		}
		return errors.New("no stock")
	})
	fmt.Println(err)
	err = db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		return ob.Publish(ctx, tx, core.Event{Type: "order.shipped", AggregateID: "1", Data: []int{1}})
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

// A statement that causes events and is in no transaction gets one of its own.
func Example_bunWithoutTransaction() {
	db, remove := exampleBunDB((*exampleBunOrder)(nil))
	defer remove()
	ob, drain := exampleBunOutbox(db)
	db = db.WithQueryHook(ob.Hook())

	order := &exampleBunOrder{}
	order.place()
	_, err := db.NewInsert().Model(order).Exec(context.Background())
	fmt.Println(err)
	drain()
	// Output:
	// <nil>
	// order.placed of order 1: {"Order":{"ID":1,"Status":"placed"}}
}

// RunInTx follows its transaction whatever pool it is on, and a call within a call is a savepoint.
func Example_bunRunInTx() {
	db, remove := exampleBunDB((*exampleBunOrder)(nil))
	defer remove()
	ob, drain := exampleBunOutbox(db)

	err := ob.RunInTx(context.Background(), func(ctx context.Context, tx bun.Tx) error {
		order := &exampleBunOrder{}
		order.place()
		if _, err := tx.NewInsert().Model(order).Exec(ctx); err != nil {
			return err
		}
		err := ob.RunInTx(ctx, func(ctx context.Context, tx bun.Tx) error {
			if err := ob.Publish(ctx, tx, core.Event{Type: "gift.added", AggregateID: "1"}); err != nil {
				return err
			}
			return errors.New("no gifts left")
		})
		fmt.Println(err)
		return nil
	})
	fmt.Println(err)
	drain()
	// Output:
	// no gifts left
	// <nil>
	// order.placed of order 1: {"Order":{"ID":1,"Status":"placed"}}
}

// A function that needs to read, or can fail, gets the context of the statement.
func Example_bunOnContext() {
	db, remove := exampleBunDB((*exampleBunOrder)(nil))
	defer remove()
	ob, drain := exampleBunOutbox(db)
	bunoutbox.OnContext(ob, func(ctx context.Context, op core.Op, o *exampleBunOrder) ([]core.Event, error) {
		tx, err := bunoutbox.FromContext(ctx)
		if err != nil {
			return nil, err
		}
		count, err := tx.NewSelect().Model((*exampleBunOrder)(nil)).Count(ctx)
		return []core.Event{{Type: "order." + op.String(), Data: map[string]int64{"orders": count}}}, err
	})

	err := ob.RunInTx(context.Background(), func(ctx context.Context, tx bun.Tx) error {
		_, err := tx.NewInsert().Model(&exampleBunOrder{Status: "placed"}).Exec(ctx)
		return err
	})
	fmt.Println(err)
	drain()
	// Output:
	// <nil>
	// order.create of order 1: {"orders":1}
}

// TxOf gives Bun's transaction to code that does not know Bun.
func Example_bunTxOf() {
	db, remove := exampleBunDB()
	defer remove()
	ob, drain := exampleBunOutbox(db)

	err := db.RunInTx(context.Background(), nil, func(ctx context.Context, tx bun.Tx) error {
		own, err := bunoutbox.TxOf(ctx, tx)
		if err != nil {
			return err
		}
		_, err = ob.Outbox().Publish(ctx, own, core.Event{Type: "order.placed", AggregateID: "7", Data: 1})
		return err
	})
	fmt.Println(err)
	drain()
	// Output:
	// <nil>
	// order.placed of order 7: 1
}

// Other packages, such as the inbox, run work in Bun's transactions through a Transactor.
func Example_bunTransactor() {
	db, remove := exampleBunDB((*exampleBunOrder)(nil))
	defer remove()

	transactor := bunoutbox.Transactor(db)
	err := transactor.RunInTx(context.Background(), func(ctx context.Context, _ core.Tx) error {
		tx, err := bunoutbox.FromContext(ctx)
		if err != nil {
			return err
		}
		_, err = tx.NewInsert().Model(&exampleBunOrder{Status: "placed"}).Exec(ctx)
		return err
	})
	fmt.Println(err)
	count, err := db.NewSelect().Model((*exampleBunOrder)(nil)).Count(context.Background())
	fmt.Println(count, err)
	// Output:
	// <nil>
	// 1 <nil>
}

type exampleBunInvoice struct {
	bun.BaseModel `bun:"table:invoices"`

	ID    int64 `bun:",pk,autoincrement"`
	Cents int
}

func (*exampleBunInvoice) BeforeInsert(ctx context.Context, q *bun.InsertQuery) error {
	return bunoutbox.BeforeInsert(ctx, q)
}

// A statement fails when its events cannot be written. With the model hook it is not executed by a
// *bun.DB without the query hook.
func Example_bunModelHooks() {
	db, remove := exampleBunDB((*exampleBunInvoice)(nil))
	defer remove()
	ob, drain := exampleBunOutbox(db)
	bunoutbox.OnContext(ob, func(_ context.Context, _ core.Op, i *exampleBunInvoice) ([]core.Event, error) {
		if i.Cents < 0 {
			return nil, errors.New("negative invoice")
		}
		return []core.Event{{Type: "invoice", Data: i.Cents}}, nil
	})
	insert := func(db *bun.DB, cents int) error {
		return db.RunInTx(context.Background(), nil, func(ctx context.Context, tx bun.Tx) error {
			_, err := tx.NewInsert().Model(&exampleBunInvoice{Cents: cents}).Exec(ctx)
			return err
		})
	}

	fmt.Println(errors.Is(insert(db, 100), core.ErrNotInstalled)) // it was easy to forget the assignment below
	db = db.WithQueryHook(ob.Hook())
	fmt.Println(insert(db, -1))
	fmt.Println(insert(db, 100))
	drain()
	// Output:
	// true
	// negative invoice
	// <nil>
	// invoice of order 1: 100
}
