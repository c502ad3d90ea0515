package gormoutbox

import (
	"context"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/adapter"
)

// On registers fn, which derives events from a change of a model of type T. fn gets the model as it
// was saved, with generated keys. fn runs within the transaction, once for each element of a
// statement, and must not change the model. For OpDelete and for updates through Model(...) the
// model has only the values that the caller put into it, perhaps only its key. With ResolveRows, fn
// gets the rows themselves for statements that name no model. If GORM leaves fields out of a
// statement (zero values of Updates(&model), Select and Omit), those fields have the values of the
// model; with ResolveRows, fn gets the row after an update. All functions of one type are called,
// in the order of registration. On can be called at any time. Mistakes (a nil argument, a T that is
// no struct) are reported by db.Use, and after that by every Publish and by Run. A panic of fn goes
// on to the program, and the transaction does not commit: RunInTx, db.Transaction and the plugin
// (for the transaction of a single statement) roll it back.
func On[T any](ob *Outbox, fn func(op core.Op, model *T) []core.Event) {
	adapter.On(ob.mappers(), fn)
}

// OnContext is On for functions that need the context of the statement or can return an error.
// Their error becomes the error of the statement. FromContext finds the transaction in ctx, for
// reading other data that the event needs.
func OnContext[T any](
	ob *Outbox, fn func(ctx context.Context, op core.Op, model *T) ([]core.Event, error),
) {
	adapter.OnContext(ob.mappers(), fn)
}

// OnAll is OnContext for every model whose statements GORM sends, also for those first seen later. fn
// gets a pointer to the model's type. except names models that are passed over, such as
// &AuditLog{}. If the database cannot name the rows of a type, because it has no primary key, the
// type is left out, and one warning is logged.
func OnAll(
	ob *Outbox, fn func(ctx context.Context, op core.Op, model any) ([]core.Event, error), except ...any,
) {
	adapter.OnAll(ob.mappers(), fn, except...)
}

func (o *Outbox) mappers() *adapter.Mappers {
	if o == nil || o.own == nil {
		return nil
	}
	return &o.own.Mappers
}
