package sqltx

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/ormoutbox/ormoutbox/core"
)

// NewTransactor returns a core.Transactor on a pool, opened with Connector or not. RunInTx gives fn
// a *Tx, which FromContext finds too. If the context already carries a transaction of the same
// Transactor, RunInTx runs fn in a savepoint. A panic in fn rolls back and goes on.
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
		if t, ok := tx.(*Tx); ok && t.owner == r {
			return t.nested(ctx, fn)
		}
	}
	t, err := Begin(ctx, r.db, nil, r.dialect)
	if err != nil {
		return err
	}
	t.owner = r
	// without a callback, Commit would not report an unknown outcome
	t.OnOutcome(func(core.Outcome) {})
	ended := false
	defer func() {
		if !ended { // fn panicked, or called runtime.Goexit
			_ = t.Rollback()
		}
	}()
	err = fn(core.ContextWithTx(ctx, t), t)
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
	name := fmt.Sprintf("outbox_%d", t.depth)
	if _, err := t.ExecContext(ctx, "SAVEPOINT "+name); err != nil {
		return err
	}
	ended := false
	undo := func() error {
		// The context of fn may be the reason for the rollback, and must not prevent it.
		undoCtx := context.WithoutCancel(ctx)
		if _, err := t.ExecContext(undoCtx, "ROLLBACK TO SAVEPOINT "+name); err != nil {
			return err
		}
		_, err := t.ExecContext(undoCtx, "RELEASE SAVEPOINT "+name)
		return err
	}
	defer func() {
		if !ended {
			_ = undo()
		}
	}()
	err := fn(ctx, t)
	if err == nil {
		err = t.Err()
	}
	ended = true
	if err != nil {
		return withRollback(err, undo())
	}
	_, err = t.ExecContext(ctx, "RELEASE SAVEPOINT "+name)
	return err
}

// withRollback adds a failed rollback to the error that asked for it, unless the transaction had
// already ended.
func withRollback(err, rollback error) error {
	if rollback == nil || errors.Is(rollback, sql.ErrTxDone) {
		return err
	}
	return errors.Join(err, fmt.Errorf("sqltx: roll back: %w", rollback))
}
