package bunoutbox

import (
	"context"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/adapter"
)

// On registers fn, which derives events from a change of a model of type T. fn gets the model as it
// was saved, with generated keys. fn runs within the transaction, once for each row that the
// database said was changed, and must not change the model. For OpUpdate and OpDelete the model has
// only the values that the caller put into it, perhaps only its key. If a statement sets other
// values than its model has (Set("stock = stock - 1")), or is an upsert, the rows are read back by
// one more SELECT, unless Returning("*") returns them. All functions of one type are called, in the
// order of registration. On can be called at any time. Mistakes (a nil argument, a T that is no
// struct) are reported by every Publish and RunInTx, and by Run. A panic of fn goes on to the
// program, and the transaction does not commit.
//
// The statements must run on the *bun.DB of Outbox.DB, or on another one with Outbox.Hook.
func On[T any](ob *Outbox, fn func(op core.Op, model *T) []core.Event, options ...OnOption) {
	adapter.On(ob.mappers(), fn, options...)
}

// OnContext is On for functions that need the context of the statement or can return an error.
// Their error makes the transaction fail: see AfterInsert. core.TxFromContext finds the transaction
// of the statement in ctx, for the time of the call, and so does Outbox.Publish with a nil
// transaction. FromContext finds the bun.Tx if the statement ran with the context that RunInTx of
// the outbox gave.
func OnContext[T any](
	ob *Outbox, fn func(ctx context.Context, op core.Op, model *T) ([]core.Event, error), options ...OnOption,
) {
	adapter.OnContext(ob.mappers(), fn, options...)
}

func (o *Outbox) mappers() *adapter.Mappers {
	if o == nil || o.own == nil {
		return nil
	}
	return &o.own.Mappers
}
