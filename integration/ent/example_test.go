package ent_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"entgo.io/ent"
	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	entmigrate "entgo.io/ent/dialect/sql/schema"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/entoutbox"
	"github.com/ormoutbox/ormoutbox/entoutbox/entschema"
	"github.com/ormoutbox/ormoutbox/integration/internal/entclient"
	"github.com/ormoutbox/ormoutbox/integration/internal/entplain"
)

// printed is a publisher that prints each event.
var printed = core.PublisherFunc(func(_ context.Context, d core.Delivery) error {
	fmt.Println(strings.TrimSpace(fmt.Sprintln("published", d.Type, d.AggregateID, string(d.Payload))))
	return nil
})

// must ends an example after an error.
func must(errs ...error) {
	if err := errors.Join(errs...); err != nil {
		panic(err)
	}
}

// exampleDriver opens a database of SQLite in a new folder.
func exampleDriver() (dialect.Driver, func()) {
	dir, err := os.MkdirTemp("", "outbox")
	must(err)
	pool, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "example.db")+
		"?_pragma=busy_timeout(10000)&_pragma=foreign_keys(1)&_txlock=immediate")
	must(err)
	return entsql.OpenDB(dialect.SQLite, pool), func() { must(pool.Close(), os.RemoveAll(dir)) }
}

// exampleClient does the steps of Example_ent in short.
func exampleClient() (*entclient.Client, *entoutbox.Outbox, func()) {
	drv, closeDriver := exampleDriver()
	ob, err := entoutbox.New(drv, entoutbox.Config{Publisher: printed, AutoCreate: true})
	must(err)
	client := entclient.NewClient(entclient.Driver(ob.Driver()))
	migrateEnt.Lock()
	defer migrateEnt.Unlock()
	must(client.Schema.Create(context.Background()))
	return client, ob, closeDriver
}

// From an opened database to the first event.
func Example_ent() {
	ctx, stop := context.WithCancel(context.Background())
	drv, closeDriver := exampleDriver() // entsql.Open(dialect.Postgres, url)
	defer closeDriver()

	published := make(chan string)
	ob, err := entoutbox.New(drv, entoutbox.Config{
		Publisher: core.PublisherFunc(func(_ context.Context, d core.Delivery) error {
			published <- fmt.Sprintf("%s of order %s: %s", d.Type, d.AggregateID, d.Payload)
			return nil
		}),
		AutoCreate: true,
	})
	must(err)
	client := entclient.NewClient(entclient.Driver(ob.Driver()))
	client.Use(ob.Hook(entoutbox.OnMutation(func(
		ctx context.Context, m *entclient.OrderMutation, v ent.Value,
	) ([]core.Event, error) {
		name, _ := m.Name()
		return []core.Event{{
			Type: "order." + entoutbox.OpOf(ctx).String(), AggregateType: "order",
			Data: map[string]string{"name": name},
		}}, nil
	})))
	must(client.Schema.Create(ctx))
	relayed := make(chan error, 1)
	go func() { relayed <- ob.Run(ctx) }()

	tx, err := client.Tx(ctx)
	must(err)
	must(tx.Order.Create().SetName("books").Exec(ctx))
	must(tx.Commit())
	fmt.Println(<-published)

	stop()
	must(<-relayed)
	// Output:
	// order.create of order 1: {"name":"books"}
}

// An event of a rolled-back transaction is not published.
func Example_entHook() {
	ctx := context.Background()
	client, ob, done := exampleClient()
	defer done()
	client.Use(ob.Hook(entoutbox.OnMutation(func(
		ctx context.Context, m *entclient.OrderMutation, _ ent.Value,
	) ([]core.Event, error) {
		// order is kept within a topic
		return []core.Event{{Type: "order." + entoutbox.OpOf(ctx).String(), Topic: "orders"}}, nil
	})))

	must(client.Order.Create().SetName("alone").Exec(ctx)) // the statement gets a transaction of its own
	fmt.Println(entoutbox.WithTx(ctx, client.Tx, func(ctx context.Context, tx *entclient.Tx) error {
		if err := tx.Order.Create().SetName("refused").Exec(ctx); err != nil {
			return err
		}
		return errors.New("no stock")
	}))
	must(entoutbox.WithTx(ctx, client.Tx, func(ctx context.Context, tx *entclient.Tx) error {
		order, err := tx.Order.Create().SetName("books").Save(ctx)
		if err != nil {
			return err
		}
		return order.Update().SetQty(2).Exec(ctx)
	}))
	must(ob.Drain(ctx))
	// Unordered output:
	// no stock
	// published order.create 1
	// published order.create 2
	// published order.update 2
}

// The code publishes an event, in any transaction of the client.
func Example_entPublish() {
	ctx := context.Background()
	client, ob, done := exampleClient()
	defer done()

	tx, err := client.Tx(ctx)
	must(err)
	order, err := tx.Order.Create().SetName("books").Save(ctx)
	must(err)
	must(ob.Publish(ctx, tx, core.Event{
		Type: "order.placed", AggregateID: fmt.Sprint(order.ID),
		Data: order.Name,
	}))
	must(tx.Commit())

	fmt.Println(errors.Is(ob.Publish(ctx, client, core.Event{Type: "x"}), core.ErrNoTransaction))
	must(ob.Drain(ctx))
	// Output:
	// true
	// published order.placed 1 "books"
}

// TxOf gives Ent's transaction to code that does not know Ent.
func Example_entTxOf() {
	ctx := context.Background()
	client, ob, done := exampleClient()
	defer done()

	tx, err := client.Tx(ctx)
	must(err)
	coreTx, err := entoutbox.TxOf(ctx, tx)
	must(err)
	_, err = ob.Outbox().Publish(ctx, coreTx, core.Event{Type: "order.placed"})
	must(err, tx.Commit())
	fmt.Println(coreTx.Dialect(), coreTx.Tracked())
	must(ob.Drain(ctx))
	// Output:
	// sqlite true
	// published order.placed
}

// Within a transaction of the same database WithTx is a savepoint. A nil connection stands for the
// transaction in the context.
func Example_entWithTx() {
	ctx := context.Background()
	client, ob, done := exampleClient()
	defer done()

	must(entoutbox.WithTx(ctx, client.Tx, func(ctx context.Context, tx *entclient.Tx) error {
		gift := entoutbox.WithTx(ctx, client.Tx, func(ctx context.Context, tx *entclient.Tx) error {
			return errors.Join(ob.Publish(ctx, nil, core.Event{Type: "gift.added"}), errors.New("no gifts left"))
		})
		fmt.Println(gift)
		return ob.Publish(ctx, nil, core.Event{Type: "order.placed"})
	}))
	must(ob.Drain(ctx))
	// Output:
	// no gifts left
	// published order.placed
}

// Other packages, such as the inbox, run work in Ent's transactions through a Transactor.
func Example_entTransactor() {
	ctx := context.Background()
	client, ob, done := exampleClient()
	defer done()

	transactor := entoutbox.Transactor(client.Tx)
	must(transactor.RunInTx(ctx, func(ctx context.Context, _ core.Tx) error {
		tx, err := entoutbox.FromContext[*entclient.Tx](ctx)
		if err != nil {
			return err
		}
		if err := tx.Order.Create().SetName("books").Exec(ctx); err != nil {
			return err
		}
		return ob.Publish(ctx, tx, core.Event{Type: "order.placed"})
	}))
	must(ob.Drain(ctx))
	fmt.Println(client.Order.Query().CountX(ctx))
	// Output:
	// published order.placed
	// 1
}

// Ent's migration creates the tables that the schema folder declares with the mixins of entschema:
// client.Schema.Create(ctx, entschema.MigrateOptions("")...) does these steps.
func Example_entMigrateOptions() {
	ctx := context.Background()
	drv, closeDriver := exampleDriver()
	defer closeDriver()
	ob, err := entoutbox.New(drv, entoutbox.Config{})
	must(err)
	m, err := entmigrate.NewMigrate(ob.Driver(), entschema.MigrateOptions("")...)
	must(err)
	must(m.Create(ctx, outboxTables()...))

	client := entplain.NewClient(entplain.Driver(ob.Driver()))
	must(entoutbox.WithTx(ctx, client.Tx, func(ctx context.Context, _ *entplain.Tx) error {
		return ob.Publish(ctx, nil, core.Event{Type: "order.placed", AggregateID: "7"})
	}))
	row := client.OutboxEvent.Query().OnlyX(ctx)
	fmt.Println(row.EventType, *row.AggregateID, strings.HasPrefix(row.ID.String(), "0"))
	// Output: order.placed 7 true
}
