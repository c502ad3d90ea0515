package sqltx_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

func init() { sql.Register("example", &dsnDriver{fake: newFake()}) }

// Open in place of sql.Open: the transactions of the pool are tracked. Here a driver of the test
// stands in for pgx.
func ExampleOpen() {
	// the dialect can be left out: the common drivers tell it
	pool, err := sqltx.Open("example", "postgres://...", core.Postgres)
	if err != nil {
		panic(err)
	}
	defer pool.Close()

	ctx := context.Background()
	tx, err := pool.BeginTx(ctx, nil)
	if err != nil {
		panic(err)
	}
	defer tx.Rollback()
	otx, err := sqltx.TxOf(ctx, tx) // what core.Outbox.Publish takes
	if err != nil {
		panic(err)
	}
	fmt.Println(otx.Tracked(), tx.Commit())
	// Output: true <nil>
}

// A pool opened with Connector tracks every transaction, whichever library begins it.
func ExampleConnector() {
	pool := sql.OpenDB(sqltx.Connector(newFake(), core.Postgres)) // in place of newFake(): stdlib.GetConnector(*config)
	defer pool.Close()

	ctx := context.Background()
	tx, err := pool.BeginTx(ctx, nil)
	if err != nil {
		panic(err)
	}
	defer tx.Rollback()
	ob, err := sqltx.TxOf(ctx, tx) // what core.Outbox.Publish takes
	if err != nil {
		panic(err)
	}
	ob.OnOutcome(func(o core.Outcome) { fmt.Println("heard:", o) })
	fmt.Println("tracked:", ob.Tracked(), "error:", tx.Commit())
	// Output:
	// heard: committed
	// tracked: true error: <nil>
}

// Outside a transaction there is nothing an event could be atomic with.
func ExampleTxOf() {
	pool := sql.OpenDB(sqltx.Connector(newFake(), core.Postgres))
	defer pool.Close()
	_, err := sqltx.TxOf(context.Background(), pool)
	fmt.Println(err)
	// Output: outbox: no transaction: TxOf was given a *sql.DB; begin a transaction and give it that
}

// Begin needs no change to how the pool is opened.
func ExampleBegin() {
	pool := sql.OpenDB(newFake())
	defer pool.Close()

	ctx := context.Background()
	tx, err := sqltx.Begin(ctx, pool, nil, core.Postgres)
	if err != nil {
		panic(err)
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, "UPDATE orders SET status = 'placed' WHERE id = 1"); err != nil {
		panic(err)
	}
	tx.OnOutcome(func(o core.Outcome) { fmt.Println("heard:", o) }) // tx is what core.Outbox.Publish takes
	fmt.Println(tx.Commit())
	// Output:
	// heard: committed
	// <nil>
}

// A Transactor commits when the function returns nil. Within it, another call is a savepoint.
func ExampleNewTransactor() {
	pool := sql.OpenDB(newFake())
	defer pool.Close()

	r := sqltx.NewTransactor(pool, core.Postgres)
	err := r.RunInTx(context.Background(), func(ctx context.Context, tx core.Tx) error {
		tx.OnOutcome(func(o core.Outcome) { fmt.Println("outer:", o) })
		err := r.RunInTx(ctx, func(ctx context.Context, tx core.Tx) error {
			tx.OnOutcome(func(o core.Outcome) { fmt.Println("inner:", o) })
			return fmt.Errorf("no stock")
		})
		fmt.Println(err)
		return nil
	})
	fmt.Println(err)
	// Output:
	// inner: rolled_back
	// no stock
	// outer: committed
	// <nil>
}

// FromContext finds the transaction of a Transactor, wherever the context arrives.
func ExampleFromContext() {
	pool := sql.OpenDB(newFake())
	defer pool.Close()

	store := func(ctx context.Context) error {
		tx, err := sqltx.FromContext(ctx)
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, "INSERT INTO orders (id) VALUES (7)")
		return err
	}
	ctx := context.Background()
	fmt.Println(errors.Is(store(ctx), core.ErrNoTransaction))
	fmt.Println(sqltx.NewTransactor(pool, core.Postgres).RunInTx(ctx, func(ctx context.Context, _ core.Tx) error {
		return store(ctx)
	}))
	// Output:
	// true
	// <nil>
}
