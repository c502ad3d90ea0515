package pgxoutbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

// Transactor makes a core.Transactor of a Pool, for an inbox or for code of your own. In a function
// given to RunInTx, FromContext returns the pgx.Tx to work with. If pool is nil,
// core.CheckTransactor returns an error, and so do the functions that take the Transactor.
// Otherwise RunInTx returns it.
//
// Within a transaction of the same *pgxpool.Pool, RunInTx runs its function in a savepoint. If that
// transaction is over, the error wraps core.ErrNoTransaction. RunInTx returns nil only if the
// transaction is known to have committed. If a statement failed and the function ignored that,
// RunInTx rolls back and returns an error wrapping core.ErrTxAborted.
func Transactor(pool *Pool) core.Transactor { return &transactor{pool: pool} }

const owner = "pgxoutbox"

type transactor struct{ pool *Pool }

// Validate is for core.CheckTransactor.
func (r *transactor) Validate() error { return r.pool.check() }

// RunInTx implements core.Transactor.
func (r *transactor) RunInTx(ctx context.Context, fn func(context.Context, core.Tx) error) (err error) {
	if fn == nil {
		return errors.New("pgxoutbox: RunInTx was given a nil function")
	}
	if err := r.Validate(); err != nil {
		return err
	}
	if outer, ok := core.TxFromContext(ctx); ok {
		if own, ok := outer.(*nativeCore); ok && own.of.pool == r.pool.Pool {
			return own.nested(ctx, fn)
		}
	}
	t, err := r.pool.begin(ctx, pgx.TxOptions{})
	if err != nil {
		return err
	}
	// without a callback, Commit would not report an unknown outcome
	t.own.OnOutcome(func(core.Outcome) {})
	ended := false
	defer func() {
		if !ended { // fn panicked, or called runtime.Goexit
			_ = t.Rollback(ctx)
		}
	}()
	err = fn(sqltx.ContextWithTx(ctx, &t.own, owner), &t.own)
	if err == nil {
		err = t.own.Err()
	}
	ended = true
	if err == nil {
		return t.Commit(ctx)
	}
	// if the rollback fails, the connection is closed, and the server rolls back
	_ = t.Rollback(ctx)
	return err
}

// nested runs fn in a savepoint.
func (c *nativeCore) nested(ctx context.Context, fn func(context.Context, core.Tx) error) error {
	t := c.of
	t.depth++
	defer func() { t.depth-- }()
	return sqltx.RunInSavepoint(ctx, c, fmt.Sprintf("outbox_%d", t.depth), func() error { return fn(ctx, c) })
}
