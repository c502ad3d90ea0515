package entoutbox

import (
	"context"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

// Publish records events in the transaction that conn is in, in one statement where the database
// allows it. They leave after the commit. A nil conn stands for the transaction that ctx carries:
// of WithTx, of RunInTx of a Transactor, or of the mutation in an On function. Errors are those of
// core.Outbox.Publish and TxOf; outside a transaction it is core.ErrNoTransaction and nothing was
// written. After an error roll the transaction back.
func (o *Outbox) Publish(ctx context.Context, conn Conn, events ...core.Event) error {
	if err := o.ready(); err != nil {
		return err
	}
	if conn == nil {
		return o.own.Publish(ctx, nil, events...)
	}
	t, err := find(ctx, conn)
	if err != nil {
		return err
	}
	return o.own.Publish(ctx, t.core, events...)
}

// AfterCommit runs fn after the commit of the transaction that conn is in, and never when it, or
// the savepoint around this call, is rolled back or nobody knows; see sqltx.AfterCommit for what fn
// may do. Outside a transaction the error is core.ErrNoTransaction; then fn never runs.
func AfterCommit(ctx context.Context, conn Conn, fn func()) error {
	t, err := TxOf(ctx, conn)
	if err != nil {
		return err
	}
	return sqltx.AfterCommit(t, fn)
}
