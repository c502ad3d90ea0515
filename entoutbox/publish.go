package entoutbox

import (
	"context"

	"github.com/ormoutbox/ormoutbox/core"
)

// Publish records events in the transaction that conn is in, in one statement where the database
// allows it. They leave after the commit. A nil conn stands for the transaction that ctx carries:
// of WithTx, of RunInTx of a Transactor, or of the mutation in an On function. Errors are those of
// core.Outbox.Publish and TxOf; outside a transaction it is ErrNoTransaction and nothing was
// written. After an error roll the transaction back.
func (o *Outbox) Publish(ctx context.Context, conn Conn, events ...core.Event) error {
	if err := o.problem(); err != nil {
		return err
	}
	var in core.Tx
	if conn != nil {
		t, err := o.find(ctx, conn)
		if err != nil {
			return err
		}
		in = t.core
	} else if s := scopeOf(ctx); s != nil {
		if carried, _ := core.TxFromContext(ctx); carried == s.tx.core {
			if err := o.owns(s.tx); err != nil {
				return err
			}
		}
	}
	_, err := o.core.Publish(ctx, in, events...)
	return err
}
