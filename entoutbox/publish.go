package entoutbox

import (
	"context"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

// Publish records events in the transaction of conn, in one statement where the database allows it.
// They are sent after the commit. A nil conn stands for the transaction that ctx carries: that of
// WithTx, of RunInTx of a Transactor, or of the mutation in an On function. Errors are those of
// core.Outbox.Publish and TxOf. Outside a transaction the error is core.ErrNoTransaction, and
// nothing was written. After an error roll the transaction back. To know the id of an event, set
// Event.ID to core.NewEventID().
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

// AfterCommit runs fn after the commit of conn's transaction. It never runs fn if the transaction,
// or the savepoint around this call, is rolled back, or if the outcome is unknown; see
// sqltx.AfterCommit for the limits of fn. Outside a transaction the error is core.ErrNoTransaction,
// and fn never runs.
func AfterCommit(ctx context.Context, conn Conn, fn func()) error {
	t, err := TxOf(ctx, conn)
	if err != nil {
		return err
	}
	return sqltx.AfterCommit(t, fn)
}
