package sqltx

import (
	"context"
	"database/sql"
	"errors"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/errtext"
)

// RunInSavepoint runs fn in a savepoint of tx. If it returns nil, the changes of fn stay in the
// transaction. If fn returns an error, panics or calls runtime.Goexit, or if tx is aborted after
// fn, or the savepoint cannot be released, the changes are rolled back. It is for authors of
// adapters: for RunInTx of a Transactor within a transaction of its own.
//
// The end of ctx does not prevent the release or the rollback of the savepoint. If the changes
// should be rolled back and cannot be, tx does not commit, provided that it has the method
// RefuseCommit of *Tx. If tx is over, the error is as from OverError. name must be unique among the
// savepoints that are open.
func RunInSavepoint(ctx context.Context, tx core.Tx, name string, fn func() error) error {
	if _, err := tx.Exec(ctx, "SAVEPOINT "+name); err != nil {
		return OverError(err)
	}
	ended := false
	undo := func() error {
		// The context of fn may be the reason for the rollback, and must not prevent it.
		undoCtx := context.WithoutCancel(ctx)
		_, err := tx.Exec(undoCtx, "ROLLBACK TO SAVEPOINT "+name)
		if err == nil {
			_, err = tx.Exec(undoCtx, "RELEASE SAVEPOINT "+name)
		} else if t, ok := tx.(interface{ RefuseCommit(err error) (lift func()) }); ok {
			t.RefuseCommit(err)
		}
		return err
	}
	defer func() {
		if !ended {
			_ = undo()
		}
	}()
	err := fn()
	if err == nil {
		err = tx.Err()
	}
	if err == nil {
		// fn has succeeded: its context may end now
		_, err = tx.Exec(context.WithoutCancel(ctx), "RELEASE SAVEPOINT "+name)
	}
	ended = true
	if err != nil {
		return withRollback(err, undo())
	}
	return nil
}

// withRollback adds a failed rollback to the error that asked for it, unless the transaction had
// already ended.
func withRollback(err, rollback error) error {
	if rollback == nil || errors.Is(rollback, sql.ErrTxDone) {
		return err
	}
	return errors.Join(err, errtext.Errorf("outbox: roll back: %w", rollback))
}

// OverError returns err, the error of a SAVEPOINT. If err is sql.ErrTxDone, the result also wraps
// core.ErrNoTransaction, and explains that the context still carries a transaction that is over. It
// is for authors of adapters that set savepoints by the means of their ORM.
func OverError(err error) error {
	if !errors.Is(err, sql.ErrTxDone) {
		return err
	}
	return errtext.Errorf("%w: the context still carries a transaction that is over: "+
		"use the context from before RunInTx: %w", core.ErrNoTransaction, err)
}
