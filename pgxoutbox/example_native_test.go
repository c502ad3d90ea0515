package pgxoutbox_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/pgxoutbox"
)

// place writes an order and its event.
func place(ctx context.Context, pool *pgxoutbox.Pool, ob *core.Outbox, id string) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `INSERT INTO orders (id) VALUES ($1)`, id); err != nil {
			return err
		}
		_, err := pgxoutbox.Publish(ctx, ob, tx, core.Event{
			Type: "order.placed", AggregateType: "order", AggregateID: id, Data: id,
		})
		return err
	})
}

// A pool and its outbox in one call.
func ExampleOpen() {
	run := func(ctx context.Context, publisher core.Publisher) error {
		pool, ob, err := pgxoutbox.Open(ctx, "postgres://app@localhost:5432/shop",
			pgxoutbox.OpenConfig{Publisher: publisher, AutoCreate: true})
		if err != nil {
			return err
		}
		defer pool.Close()
		relay := make(chan error, 1)
		go func() { relay <- ob.Run(ctx) }()
		if err := place(ctx, pool, ob, "7"); err != nil {
			return err
		}
		return <-relay // ends with ctx
	}
	_ = run // needs a server
}

// OpenPool is for pools with tracers, hooks and limits. A wrong setting is reported at once.
func ExampleOpenPool() {
	config, err := pgxpool.ParseConfig("postgres://app@localhost:5432/shop")
	if err != nil {
		panic(err)
	}
	config.MaxConns = 20
	_, _, err = pgxoutbox.OpenPool(context.Background(), config, pgxoutbox.OpenConfig{Dialect: core.SQLite})
	fmt.Println(err)
	// Output: sqloutbox: Config.Dialect is "sqlite", and a Pool is for PostgreSQL
}

// A pool that the program has already. No server is needed to make its outbox.
func ExampleNew() {
	own, err := pgxpool.New(context.Background(), "postgres://app@localhost:5432/shop")
	if err != nil {
		panic(err)
	}
	defer own.Close()
	pool := pgxoutbox.NewPool(own)
	ob, err := pgxoutbox.New(pool, pgxoutbox.OpenConfig{Routes: map[string][]string{"order.placed": {"orders"}}})
	fmt.Println(ob != nil, err)
	// Output: true <nil>
}

// Begin and BeginTx of the Pool are those of pgx, so pgx.BeginFunc and pgx.BeginTxFunc take it.
func ExampleNewPool() {
	serializable := func(ctx context.Context, own *pgxpool.Pool, fn func(pgx.Tx) error) error {
		return pgx.BeginTxFunc(ctx, pgxoutbox.NewPool(own), pgx.TxOptions{IsoLevel: pgx.Serializable}, fn)
	}
	_ = serializable // needs a server
}

// The tables alone, for core.New.
func ExampleNewRepository() {
	own, err := pgxpool.New(context.Background(), "postgres://app@localhost:5432/shop")
	if err != nil {
		panic(err)
	}
	defer own.Close()
	repo, err := pgxoutbox.NewRepository(own, sqloutbox.Config{Schema: "app"})
	if err != nil {
		panic(err)
	}
	fmt.Println(repo.Dialect())
	// Output: postgres
}

// Publish without a transaction is refused.
func ExamplePublish() {
	own, err := pgxpool.New(context.Background(), "postgres://app@localhost:5432/shop")
	if err != nil {
		panic(err)
	}
	defer own.Close()
	ob, err := pgxoutbox.New(pgxoutbox.NewPool(own), pgxoutbox.OpenConfig{})
	if err != nil {
		panic(err)
	}
	_, err = pgxoutbox.Publish(context.Background(), ob, nil, core.Event{Type: "order.placed"})
	fmt.Println(errors.Is(err, core.ErrNoTransaction))
	// Output: true
}

// The function runs in a transaction, which FromContext finds.
func ExampleTransactor() {
	refund := func(ctx context.Context, pool *pgxoutbox.Pool, ob *core.Outbox) error {
		return pgxoutbox.Transactor(pool).RunInTx(ctx, func(ctx context.Context, _ core.Tx) error {
			tx, err := pgxoutbox.FromContext(ctx)
			if err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, `UPDATE orders SET cents = 0 WHERE id = $1`, "7"); err != nil {
				return err
			}
			_, err = pgxoutbox.Publish(ctx, ob, tx, core.Event{Type: "order.refunded", Key: "order/7"})
			return err
		})
	}
	_ = refund // needs a server
	fmt.Println(core.CheckTransactor(pgxoutbox.Transactor(nil)))
	// Output: pgxoutbox: the *pgxpool.Pool is nil
}

func ExampleFromContext() {
	_, err := pgxoutbox.FromContext(context.Background())
	fmt.Println(err)
	// Output: outbox: no transaction in the context
}

// Code that looks for the transaction in the context finds that of tx.
func ExampleContext() {
	publish := func(ctx context.Context, ob *core.Outbox, tx pgx.Tx) error {
		_, err := ob.Publish(pgxoutbox.Context(ctx, tx), nil, core.Event{Type: "order.placed"})
		return err
	}
	_ = publish // needs a server
	_, ok := core.TxFromContext(pgxoutbox.Context(context.Background(), nil))
	fmt.Println(ok)
	// Output: false
}

// A function that may be lost runs after the commit, and never without it.
func ExampleAfterCommit() {
	drop := func(ctx context.Context, tx pgx.Tx, cache map[string]string) error {
		return pgxoutbox.AfterCommit(ctx, tx, func() { delete(cache, "order/7") })
	}
	fmt.Println(drop(context.Background(), nil, nil))
	// Output: outbox: no transaction: TxOf was given nil
}

// Packages that know only core.Tx work in a transaction of pgx.
func ExampleTxOf() {
	_, err := pgxoutbox.TxOf(context.Background(), nil)
	fmt.Println(err)
	// Output: outbox: no transaction: TxOf was given nil
}
