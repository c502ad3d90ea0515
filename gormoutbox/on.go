package gormoutbox

import (
	"context"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/adapter"
)

// On makes fn say which events a change of a model of type T causes, from the model as it was
// stored: generated keys are filled in. fn runs within the transaction, once for each element of a
// statement, and must not change the model. For OpDelete and for updates through Model(...) the
// model has what the caller put into it, which may be its key alone; with ResolveRows, statements
// that name no model show the rows themselves. What GORM leaves out of a statement, the zero values
// of Updates(&model) and what Select and Omit say, shows as the model has it; with ResolveRows,
// updates show the row. Several functions for one type are all called, in the order of
// registration. It can be called at any time; what is wrong with it (a nil argument, a T that is no
// struct) is reported by db.Use, and after that by every Publish and by Run.
func On[T any](ob *Outbox, fn func(op core.Op, model *T) []core.Event, options ...OnOption) {
	adapter.On(ob.mappers(), fn, options...)
}

// OnContext is On for functions that need the context of the statement or can fail. Their error
// becomes the statement's. FromContext finds the transaction in ctx, for reading what else the
// event needs.
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
