package gormoutbox

import (
	"context"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/adapter"
)

// On registers fn, which derives events from a change of a model of type T. fn is called once for
// each row that a statement inserted, updated or deleted, with the row as the database stored it
// (deleted: as it was; softly deleted: as it is now). It is read into a new model, for which
// AfterFind does not run. fn runs within the transaction. All functions of one type are called, in
// the order of registration. On can be called at any time. Mistakes (a nil argument, a T that is no
// struct) are reported by db.Use, and after that by every Publish and by Run. A panic of fn goes on
// to the program, and the transaction does not commit: RunInTx, db.Transaction and the plugin (for
// the transaction of a single statement) roll it back.
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
// &AuditLog{}. The tables of the outbox and of the inbox are, too. If the database cannot name the
// rows of a type, because it has no primary key, the type is left out, and one warning is logged.
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
