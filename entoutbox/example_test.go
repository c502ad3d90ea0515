package entoutbox_test

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"entgo.io/ent"
	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/entoutbox"
)

// printed is a publisher that prints.
var printed = core.PublisherFunc(func(_ context.Context, d core.Delivery) error {
	fmt.Println(strings.TrimSpace(d.Type + " " + d.AggregateID + " " + string(d.Payload)))
	return nil
})

// inMemory is entoutbox.Config{Publisher: p, AutoCreate: true}, with tables in memory.
func inMemory(p core.Publisher) entoutbox.Config {
	ob, err := core.New(core.Config{Repository: outboxtest.NewRepository(), Publisher: p, Relay: relay.Config{}})
	must(err)
	return entoutbox.Config{Outbox: ob}
}

// memory is the driver of a database that accepts every statement and keeps nothing.
func memory() dialect.Driver {
	pool, err := outboxtest.OpenDB(core.Postgres)
	must(err)
	return entsql.OpenDB(dialect.Postgres, pool)
}

// example makes a client, and an outbox that prints what it publishes.
func example() (*Client, *entoutbox.Outbox) {
	ob, err := entoutbox.New(memory(), inMemory(printed))
	must(err)
	return NewClient(ob.Driver()), ob
}

// must stops an example after an error.
func must(errs ...error) {
	if err := errors.Join(errs...); err != nil {
		panic(err)
	}
}

// The row and the event commit together. Then the event is published.
func ExampleNew() {
	drv := memory()                                  // entsql.Open("pgx", dsn)
	ob, err := entoutbox.New(drv, inMemory(printed)) // entoutbox.Config{Publisher: publisher, AutoCreate: true}
	must(err)
	client := NewClient(ob.Driver()) // ent.NewClient(ent.Driver(ob.Driver()))
	entoutbox.On(ob, func(op core.Op, o *Order) []core.Event {
		return []core.Event{{Type: "order." + op.String(), AggregateType: "order", Data: o}}
	})
	client.Use(ob.Hook())

	ctx := context.Background()
	must(entoutbox.WithTx(ctx, client.Tx, func(ctx context.Context, tx *Tx) error {
		_, err := tx.CreateOrder(ctx, "placed") // tx.Order.Create().SetStatus("placed").Save(ctx)
		return err
	}))
	must(ob.Drain(ctx)) // a service calls go ob.Run(ctx) once
	// Output: order.create 1 {"ID":1,"Status":"placed"}
}

// Open takes a driver and a DSN. It returns the driver for clients, and its outbox.
func ExampleOpen() {
	ctx := context.Background()
	config := entoutbox.Config{Publisher: printed, AutoCreate: true}
	drv, ob, err := entoutbox.Open(ctx, "pgx", "postgres://...", config)
	if err != nil {
		fmt.Println(err) // this program does not import pgx
		return
	}
	client := NewClient(drv) // ent.NewClient(ent.Driver(drv))
	client.Use(ob.Hook())
	go ob.Run(ctx) // in each process that relays
	// Output: sqltx: open the pool: sql: unknown driver "pgx" (forgotten import?)
}

// OpenConnector takes the connector of a driver that is configured by code, such as
// stdlib.GetConnector(cfg).
func ExampleOpenConnector() {
	drv, ob, err := entoutbox.OpenConnector(context.Background(), down{errDown}, inMemory(printed))
	if err != nil {
		fmt.Println("the dialect is told by the driver, and this one is unknown")
		return
	}
	defer drv.Close()
	_ = ob.Driver() == drv
	// Output: the dialect is told by the driver, and this one is unknown
}

// On derives events from the stored entities, which have their generated ids.
func ExampleOn() {
	client, ob := example()
	entoutbox.On(ob, func(op core.Op, o *Order) []core.Event {
		return []core.Event{{Type: "order." + op.String(), AggregateType: "order", Data: o}}
	})
	client.Use(ob.Hook())
	ctx := context.Background()
	must(entoutbox.WithTx(ctx, client.Tx, func(ctx context.Context, tx *Tx) error {
		_, err := tx.CreateOrder(ctx, "placed")
		return err
	}))
	must(ob.Drain(ctx))
	// Output: order.create 1 {"ID":1,"Status":"placed"}
}

// A function that reads other data, or can fail, gets the context of the mutation.
func ExampleOnContext() {
	client, ob := example()
	entoutbox.OnContext(ob, func(ctx context.Context, op core.Op, o *Order) ([]core.Event, error) {
		tx, err := entoutbox.FromContext[*Tx](ctx)
		if err != nil || tx == nil {
			return nil, err
		}
		if o.Status == "" {
			return nil, errors.New("an order without a status")
		}
		return []core.Event{{Type: "order." + op.String()}}, nil
	})
	client.Use(ob.Hook())
	fmt.Println(entoutbox.WithTx(context.Background(), client.Tx, func(ctx context.Context, tx *Tx) error {
		_, err := tx.CreateOrder(ctx, "")
		return err
	}))
	// Output: an order without a status
}

// OnMutation gives a function the mutation itself, which knows the changed fields.
func ExampleOnMutation() {
	client, ob := example()
	client.Use(ob.Hook(entoutbox.OnMutation(
		func(ctx context.Context, m *OrderMutation, v ent.Value) ([]core.Event, error) {
			return []core.Event{{Type: m.Type() + "." + entoutbox.OpOf(ctx).String(), Data: v}}, nil
		})))
	ctx := context.Background()
	must(entoutbox.WithTx(ctx, client.Tx, func(ctx context.Context, tx *Tx) error {
		_, err := tx.CreateOrder(ctx, "placed")
		return err
	}))
	must(ob.Drain(ctx))
	// Output: Order.create 1 {"ID":1,"Status":"placed"}
}

// OpOf tells a function of OnMutation which operation was done. Elsewhere it is zero.
func ExampleOpOf() {
	mapper := entoutbox.OnMutation(func(ctx context.Context, m ent.Mutation, _ ent.Value) ([]core.Event, error) {
		if entoutbox.OpOf(ctx) == core.OpDelete {
			return nil, nil // it causes no event
		}
		return []core.Event{{Type: fmt.Sprintf("%s.%s", m.Type(), entoutbox.OpOf(ctx))}}, nil // Order.create, ...
	})
	_ = mapper // for Hook
	fmt.Println(entoutbox.OpOf(context.Background()) == 0)
	// Output: true
}

// OnAll sees the entities of every type, for an audit trail.
func ExampleOnAll() {
	client, ob := example()
	entoutbox.OnAll(ob, func(_ context.Context, op core.Op, entity any) ([]core.Event, error) {
		return []core.Event{{Type: op.String(), AggregateType: fmt.Sprintf("%T", entity), Data: entity}}, nil
	})
	client.Use(ob.Hook())
	ctx := context.Background()
	_, err := client.CreateOrder(ctx, "placed") // outside of transactions it gets one of its own
	must(err, ob.Drain(ctx))
	// Output: create 1 {"ID":1,"Status":"placed"}
}

// The hook lets the outbox know the client. An event of a rolled-back
// transaction is not published.
func ExampleOutbox_Hook() {
	client, ob := example()
	entoutbox.On(ob, func(op core.Op, o *Order) []core.Event { return []core.Event{{Type: "order." + op.String()}} })
	client.Use(ob.Hook()) // or client.Order.Use, for one type
	ctx := context.Background()
	fmt.Println(entoutbox.WithTx(ctx, client.Tx, func(ctx context.Context, tx *Tx) error {
		_, err := tx.CreateOrder(ctx, "placed")
		return errors.Join(err, errors.New("no stock"))
	}))
	must(ob.Drain(ctx))
	// Output: no stock
}

// Clients are made with the driver that Driver returns.
func ExampleOutbox_Driver() {
	drv := memory()
	ob, err := entoutbox.New(drv, inMemory(printed))
	must(err)
	client := NewClient(ob.Driver()) // not NewClient(drv)
	must(entoutbox.WithTx(context.Background(), client.Tx, func(context.Context, *Tx) error { return nil }))
	err = entoutbox.WithTx(context.Background(), NewClient(drv).Tx, func(context.Context, *Tx) error { return nil })
	fmt.Println(errors.Is(err, core.ErrNotInstalled))
	// Output: true
}

// The code publishes the event itself. An event of a rolled-back transaction is not published.
func ExampleOutbox_Publish() {
	ctx := context.Background()
	client, ob := example()
	tx, err := client.Tx(ctx)
	must(err)
	must(ob.Publish(ctx, tx, core.Event{Type: "order.placed", AggregateID: "7", Data: 4200}))
	must(tx.Commit())

	fmt.Println(entoutbox.WithTx(ctx, client.Tx, func(ctx context.Context, tx *Tx) error {
		return errors.Join(ob.Publish(ctx, tx, core.Event{Type: "order.paid"}), errors.New("no money"))
	}))
	must(ob.Drain(ctx))
	// Output:
	// no money
	// order.placed 7 4200
}

// Within a transaction of the same client, WithTx sets a savepoint. A nil connection means the
// transaction in the context.
func ExampleWithTx() {
	ctx := context.Background()
	client, ob := example()
	must(entoutbox.WithTx(ctx, client.Tx, func(ctx context.Context, tx *Tx) error {
		gift := entoutbox.WithTx(ctx, client.Tx, func(ctx context.Context, tx *Tx) error {
			return errors.Join(ob.Publish(ctx, nil, core.Event{Type: "gift.added"}), errors.New("no gifts left"))
		})
		fmt.Println(gift)
		return ob.Publish(ctx, nil, core.Event{Type: "order.placed", AggregateID: "7"})
	}))
	must(ob.Drain(ctx))
	// Output:
	// no gifts left
	// order.placed 7
}

// AfterCommit runs a function only after the real commit.
func ExampleAfterCommit() {
	client, _ := example()
	must(entoutbox.WithTx(context.Background(), client.Tx, func(ctx context.Context, tx *Tx) error {
		err := entoutbox.AfterCommit(ctx, tx, func() { fmt.Println("wake the worker") })
		fmt.Println("in the transaction")
		return err
	}))
	// Output:
	// in the transaction
	// wake the worker
}

// TxOf passes Ent's transaction to code that does not import Ent.
func ExampleTxOf() {
	ctx := context.Background()
	client, ob := example()
	tx, err := client.Tx(ctx)
	must(err)
	own, err := entoutbox.TxOf(ctx, tx)
	must(err)
	_, err = ob.Outbox().Publish(ctx, own, core.Event{Type: "order.placed"})
	must(err, tx.Commit())
	fmt.Println(own.Dialect(), own.Tracked())
	// Output: postgres true
}

// Code that finds a transaction in a context, such as an event bus of Watermill, joins Ent's
// transaction.
func ExampleContext() {
	ctx := context.Background()
	client, ob := example()
	tx, err := client.Tx(ctx)
	must(err)
	_, err = ob.Outbox().Publish(entoutbox.Context(ctx, tx), nil, core.Event{Type: "order.placed", AggregateID: "7"})
	must(err, tx.Commit(), ob.Drain(ctx))
	// Output: order.placed 7
}

// Other packages, such as the inbox, run work in Ent's transactions through a Transactor.
func ExampleTransactor() {
	ctx := context.Background()
	client, ob := example()
	must(entoutbox.Transactor(client.Tx).RunInTx(ctx, func(ctx context.Context, _ core.Tx) error {
		tx, err := entoutbox.FromContext[*Tx](ctx)
		if err != nil {
			return err
		}
		return ob.Publish(ctx, tx, core.Event{Type: "order.placed", AggregateID: "7"})
	}))
	must(ob.Drain(ctx))
	// Output: order.placed 7
}

// FromContext finds the transaction of WithTx in any context that is derived from it.
func ExampleFromContext() {
	ctx := context.Background()
	client, _ := example()
	_, err := entoutbox.FromContext[*Tx](ctx)
	fmt.Println(errors.Is(err, core.ErrNoTransaction))
	must(entoutbox.WithTx(ctx, client.Tx, func(ctx context.Context, tx *Tx) error {
		found, err := entoutbox.FromContext[*Tx](ctx)
		fmt.Println(found == tx, err)
		return err
	}))
	// Output:
	// true
	// true <nil>
}
