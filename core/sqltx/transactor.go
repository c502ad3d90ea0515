package sqltx

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"

	"github.com/ormoutbox/ormoutbox/core"
)

// NewTransactor returns a core.Transactor on a pool, opened with Connector or not. RunInTx gives fn
// a *Tx, which FromContext finds too. A panic in fn rolls back and goes on.
//
// If the context already carries a *Tx of the same pool, from Begin or from any Transactor of this
// package, RunInTx runs fn in a savepoint of it. If that *Tx is over, the error wraps
// core.ErrNoTransaction. If the context carries a transaction of the pool that something else
// began, such as the Transactor of an ORM, the error wraps core.ErrOtherTransactor.
//
// RunInTx returns nil only if the transaction is known to have committed. If the database has
// rolled the transaction back and fn ignored the error (a deadlock, or a violated constraint on
// PostgreSQL), RunInTx does not commit and returns an error wrapping core.ErrTxAborted. If a
// statement of fn ended the transaction (COMMIT as text), or the answer to COMMIT was lost, the
// error wraps core.ErrCommitUnknown. If db is nil, or the dialect is neither given nor known from
// the driver, core.CheckTransactor returns an error, and so do the functions that take the
// Transactor. Otherwise RunInTx returns it. The result is safe for use by several goroutines.
func NewTransactor(db *sql.DB, d core.Dialect) core.Transactor {
	return &transactor{db: db, dialect: d}
}

// FromContext returns the transaction that a Transactor of this package put into ctx, else an error
// wrapping core.ErrNoTransaction.
func FromContext(ctx context.Context) (*Tx, error) {
	if tx, ok := core.TxFromContext(ctx); ok {
		if t, ok := tx.(*Tx); ok {
			return t, nil
		}
		return nil, fmt.Errorf("%w of package sqltx in the context, but a %T", core.ErrNoTransaction, tx)
	}
	return nil, fmt.Errorf("%w in the context", core.ErrNoTransaction)
}

type transactor struct {
	db      *sql.DB
	dialect core.Dialect
}

// Validate is for core.CheckTransactor.
func (r *transactor) Validate() error {
	if r.db == nil {
		return errors.New("sqltx: NewTransactor was given a nil *sql.DB")
	}
	_, err := dialectFor(r.db, r.dialect)
	return err
}

func (r *transactor) RunInTx(ctx context.Context, fn func(context.Context, core.Tx) error) (err error) {
	if fn == nil {
		return errors.New("sqltx: RunInTx was given a nil function")
	}
	if tx, ok := core.TxFromContext(ctx); ok {
		if t, ok := tx.(*Tx); ok && t.own && t.pool == r.db {
			return t.nested(ctx, fn)
		}
	}
	if err := CheckOwner(ctx, r.db, "sqltx"); err != nil {
		return err
	}
	t, err := Begin(ctx, r.db, nil, r.dialect)
	if err != nil {
		return err
	}
	// without a callback, Commit would not report an unknown outcome
	t.OnOutcome(func(core.Outcome) {})
	ended := false
	defer func() {
		if !ended { // fn panicked, or called runtime.Goexit
			_ = t.Rollback()
		}
	}()
	err = fn(ContextWithTx(ctx, t, "sqltx"), t)
	if err == nil {
		err = t.Err()
	}
	ended = true
	if err != nil {
		return withRollback(err, t.Rollback())
	}
	return t.Commit()
}

// nested runs fn in a savepoint.
func (t *Tx) nested(ctx context.Context, fn func(context.Context, core.Tx) error) error {
	t.depth++
	defer func() { t.depth-- }()
	return RunInSavepoint(ctx, t, fmt.Sprintf("outbox_%d", t.depth), func() error { return fn(ctx, t) })
}

// ContextWithTx is core.ContextWithTx for authors of adapters. owner names the package that runs
// the transaction for CheckOwner, such as gormoutbox.
func ContextWithTx(ctx context.Context, tx core.Tx, owner string) context.Context {
	return core.ContextWithTx(context.WithValue(ctx, ownerKey{}, owned{tx, owner}), tx)
}

// CheckOwner is for authors of adapters. RunInTx calls it before it begins a transaction on pool,
// after it has found none of its own in ctx. CheckOwner returns an error wrapping
// core.ErrOtherTransactor if ctx carries another open transaction of that pool. owner names the
// caller. A transaction of another or an unknown pool is no error.
func CheckOwner(ctx context.Context, pool *sql.DB, owner string) error {
	tx, ok := core.TxFromContext(ctx)
	if !ok || pool == nil {
		return nil
	}
	if t, ok := tx.(interface{ Pool() *sql.DB }); !ok || t.Pool() != pool {
		return nil
	}
	if errors.Is(tx.Err(), core.ErrNoTransaction) {
		return nil // it is over
	}
	return fmt.Errorf("%w: the context of RunInTx of %s carries an open transaction of %s on the same *sql.DB, and "+
		"a second one would commit on its own: use the Transactor that began it, or take the transaction out of the "+
		"context with core.ContextWithTx(ctx, nil)", core.ErrOtherTransactor, owner, ownerOf(ctx, tx))
}

type ownerKey struct{}

type owned struct {
	tx    core.Tx
	owner string
}

// ownerOf names the package that runs tx.
func ownerOf(ctx context.Context, tx core.Tx) string {
	if o, ok := ctx.Value(ownerKey{}).(owned); ok && reflect.ValueOf(tx).Comparable() && o.tx == tx {
		return o.owner
	}
	return fmt.Sprintf("%T", tx) // given to core.ContextWithTx
}
