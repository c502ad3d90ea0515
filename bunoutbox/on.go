package bunoutbox

import (
	"context"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/adapter"
)

// On makes fn say which events a change of a model of type T causes, from the model as it was
// stored: generated keys are filled in. fn runs within the transaction, once for each row that the
// database said was changed, and must not change the model. For OpUpdate and OpDelete the model has
// what the caller put into it, which may be its key alone; rows that a statement sets to other
// values than its model has (Set("stock = stock - 1")), and upserts, are read back: one SELECT
// more, unless Returning("*") tells. Several functions for one type are all called, in the order of
// registration. It can be called at any time; what is wrong with it (a nil argument, a T that is no
// struct) is reported by every Publish and RunInTx, and by Run.
//
// The *bun.DB must have the hook of ob; see Outbox.Hook.
func On[T any](ob *Outbox, fn func(op core.Op, model *T) []core.Event, options ...OnOption) {
	adapter.On(ob.mappers(), fn, options...)
}

// OnContext is On for functions that need the context of the statement or can fail. Their error
// makes the transaction fail: see AfterInsert. FromContext finds the transaction in ctx when the
// statement was run with the context that RunInTx gave.
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
