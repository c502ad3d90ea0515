package bunoutbox

import (
	"context"
	"fmt"

	"github.com/uptrace/bun"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

// Publish records events in the transaction of tx, in one statement where the database allows it.
// They are sent after the commit. A nil tx stands for the one that ctx carries (see RunInTx).
// Errors are those of core.Outbox.Publish. Outside a transaction, as with a *bun.DB, the error is
// core.ErrNoTransaction, and nothing was written. After an error roll the transaction back. To know
// the id of an event, set Event.ID to core.NewEventID().
func (o *Outbox) Publish(ctx context.Context, tx bun.IDB, events ...core.Event) error {
	if err := o.ready(); err != nil {
		return err
	}
	if tx == nil {
		return o.own.Publish(ctx, nil, events...)
	}
	own, err := TxOf(ctx, tx)
	if err != nil {
		return err
	}
	return o.own.Publish(ctx, own, events...)
}

// AfterCommit runs fn after the commit of tx. It never runs fn if the transaction, or the savepoint
// around this call, is rolled back, or if the outcome is unknown; see sqltx.AfterCommit for the
// limits of fn. Outside a transaction the error is core.ErrNoTransaction, and in an untracked one
// core.ErrUntracked; fn then never runs.
func AfterCommit(ctx context.Context, tx bun.IDB, fn func()) error {
	t, err := TxOf(ctx, tx)
	if err != nil {
		return err
	}
	return sqltx.AfterCommit(t, fn)
}

// TxOf returns the transaction of tx, for core.Outbox.Publish and other packages. tx is a bun.Tx,
// also one of a savepoint, or a bun.Conn with an open transaction. Without a transaction TxOf
// returns an error wrapping core.ErrNoTransaction. A transaction that was begun neither on a pool
// of sqltx.Connector nor by RunInTx is not tracked, and costs what sqltx.TxOf says.
func TxOf(ctx context.Context, tx bun.IDB) (core.Tx, error) {
	switch tx := tx.(type) {
	case bun.Tx:
		return sqltx.TxOf(ctx, tx.Tx)
	case *bun.Tx:
		if tx != nil {
			return sqltx.TxOf(ctx, tx.Tx)
		}
	case bun.Conn:
		return sqltx.TxOf(ctx, tx.Conn)
	case *bun.Conn:
		if tx != nil {
			return sqltx.TxOf(ctx, tx.Conn)
		}
	case *bun.DB:
		return nil, fmt.Errorf("%w: a *bun.DB is none; use RunInTx or BeginTx and give the bun.Tx",
			core.ErrNoTransaction)
	}
	return nil, fmt.Errorf("%w: got %T; give the bun.Tx", core.ErrNoTransaction, tx)
}
