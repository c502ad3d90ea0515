package bunoutbox

import (
	"context"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/adapter"
)

// On registers fn, which derives events from a change of a model of type T. fn is called once for
// each row that a statement inserted, updated or deleted, with the row as the database stored it
// (deleted: as it was). The database names the rows; the models of the statement may be partial, or
// none. fn runs within the transaction of the statement. If there is none, the statement gets one
// of its own. All functions of one type are called, in the order of registration. On can be called
// at any time. Mistakes (a nil argument, a T that is no struct) are reported by every Publish and
// RunInTx, and by Run. A panic of fn goes on to the program, and the transaction does not commit.
//
// The statements must run on the *bun.DB of Outbox.DB, or on another one with Outbox.Hook.
func On[T any](ob *Outbox, fn func(op core.Op, model *T) []core.Event) {
	adapter.On(ob.mappers(), fn)
}

// OnContext is On for functions that need the context of the statement or can return an error.
// Their error is that of the statement, and its transaction does not commit. core.TxFromContext
// finds the transaction of the statement in ctx, for the time of the call, and so does
// Outbox.Publish with a nil transaction. FromContext finds the bun.Tx if the statement ran with the
// context that RunInTx of the outbox gave. In a statement without a transaction of the program fn
// must not use the *bun.DB: the statement holds its connection, and a pool may have no other.
func OnContext[T any](
	ob *Outbox, fn func(ctx context.Context, op core.Op, model *T) ([]core.Event, error),
) {
	adapter.OnContext(ob.mappers(), fn)
}

// OnAll is OnContext for every model whose statements Bun sends, also for those first seen later. fn
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
