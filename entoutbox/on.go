package entoutbox

import (
	"context"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/adapter"
)

// On registers fn, which derives events from a change of an entity of type T (ent.Order, a
// generated struct). fn is called once for each row that a statement inserted, updated or deleted,
// with the entity as the database stored it; deleted: as it was. Rows that change because of an
// edge are among them. fn runs within the transaction, and must not change the entity. All
// functions of one type are called, in the order of registration. On can be called at any time.
// Mistakes (a nil argument, a T that is no struct) are reported by every mutation, every Publish,
// and by Run. A panic of fn goes on to the program, and the transaction does not commit.
//
// The client must have the hook of ob: client.Use(ob.Hook()). OnMutation is for functions that need
// the mutation itself.
func On[T any](ob *Outbox, fn func(op core.Op, entity *T) []core.Event) {
	adapter.On(ob.registered(), fn)
}

// OnContext is On for functions that need the context of the statement or can return an error.
// Their error becomes the error of the statement; roll the transaction back then.
// core.TxFromContext finds the transaction in ctx, and so does FromContext within WithTx. Every
// client of the outbox's driver works in that transaction with ctx, until it ends.
func OnContext[T any](
	ob *Outbox, fn func(ctx context.Context, op core.Op, entity *T) ([]core.Event, error),
) {
	adapter.OnContext(ob.registered(), fn)
}

// OnAll is OnContext for every type of the clients that have the hook of ob. fn gets a pointer to
// an entity, as the function of OnContext for its type would. except names types that are passed
// over, such as &ent.AuditLog{}. The tables of the outbox and of the inbox are, too. If the database
// cannot name the rows of a type, because it has no id, the type is left out, and one warning is
// logged.
func OnAll(
	ob *Outbox, fn func(ctx context.Context, op core.Op, entity any) ([]core.Event, error), except ...any,
) {
	adapter.OnAll(ob.registered(), fn, except...)
}

func (o *Outbox) registered() *adapter.Mappers {
	if o == nil || o.own == nil {
		return nil
	}
	return &o.own.Mappers
}
