package sqltx_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

// adapterTransactor is the Transactor of an adapter.
type adapterTransactor struct {
	pool *sql.DB
	name string
}

func (r adapterTransactor) RunInTx(ctx context.Context, fn func(context.Context, core.Tx) error) error {
	type key struct{ adapterTransactor }
	if tx, ok := ctx.Value(key{r}).(*sqltx.Tx); ok { // a real adapter numbers its savepoints
		return sqltx.RunInSavepoint(ctx, tx, "inner", func() error { return fn(ctx, tx) })
	}
	if err := sqltx.CheckOwner(ctx, r.pool, r.name); err != nil {
		return err
	}
	tx, err := sqltx.Begin(ctx, r.pool, nil, core.Postgres)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := fn(sqltx.ContextWithTx(context.WithValue(ctx, key{r}, tx), tx, r.name), tx); err != nil {
		return err
	}
	return tx.Commit()
}

// A Transactor runs nested calls in a savepoint, and refuses to begin a second transaction within
// one of another Transactor on the pool.
func ExampleRunInSavepoint() {
	driver := newFake()
	pool := sql.OpenDB(sqltx.Connector(driver, core.Postgres))
	defer pool.Close()
	own, other := adapterTransactor{pool, "own"}, adapterTransactor{pool, "other"}
	nothing := func(context.Context, core.Tx) error { return nil }
	err := own.RunInTx(context.Background(), func(ctx context.Context, _ core.Tx) error {
		fmt.Println(errors.Is(other.RunInTx(ctx, nothing), core.ErrOtherTransactor))
		return own.RunInTx(ctx, nothing)
	})
	fmt.Println(err, driver.statements())
	// Output:
	// true
	// <nil> [BEGIN SAVEPOINT inner RELEASE SAVEPOINT inner COMMIT]
}

// An adapter tracks the transactions of a connection whose pool somebody else has opened.
func ExampleTrackConn() {
	pool := sql.OpenDB(newFake()) // without Connector
	defer pool.Close()
	ctx := context.Background()
	conn, err := pool.Conn(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	tracked, err := sqltx.TrackConn(ctx, conn, core.Postgres)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer tracked.Close()
	begun, err := tracked.BeginTx(ctx, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer begun.Rollback()
	tx, err := sqltx.TxOf(ctx, begun)
	fmt.Println(tx.Tracked(), err)
	// Output: true <nil>
}

// An adapter asks for the name of the dialect where the driver does not tell it.
func ExampleDialectOf() {
	pool := sql.OpenDB(newFake())
	defer pool.Close()
	dialect, err := sqltx.DialectOf(pool)
	if err != nil { // pgx, go-sql-driver/mysql and SQLite's drivers are known
		dialect = core.Postgres // from the adapter's configuration
	}
	fmt.Println(dialect, err != nil)
	// Output: postgres true
}

// The error of a savepoint says that its transaction is over.
func ExampleOverError() {
	err := sqltx.OverError(sql.ErrTxDone)
	fmt.Println(errors.Is(err, core.ErrNoTransaction), errors.Is(err, sql.ErrTxDone))
	// Output: true true
}

// A method that cannot return an error gets it with its context.
func ExampleContextWithError() {
	pool := sql.OpenDB(newFake())
	defer pool.Close()
	ctx := sqltx.ContextWithError(context.Background(), core.ErrUntracked)
	err := pool.QueryRowContext(ctx, "SELECT 1").Err()
	fmt.Println(errors.Is(err, core.ErrUntracked))
	// Output: true
}
