package bunoutbox

import (
	"context"
	"fmt"

	"github.com/uptrace/bun"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/adapter"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

// Publish records events in the transaction of tx, in one statement where the database allows it.
// They are sent after the commit. A nil tx stands for ctx's transaction (see RunInTx). For errors
// see core.Outbox.Publish. Outside a transaction, as with a *bun.DB, the error is
// core.ErrNoTransaction, and nothing was written. After an error roll the transaction back. To know
// the id of an event, set Event.ID to core.NewEventID().
func (o *Outbox) Publish(ctx context.Context, tx bun.IDB, events ...core.Event) error {
	if err := o.ready(); err != nil {
		return err
	}
	if tx == nil {
		return o.own.Publish(ctx, nil, events...)
	}
	own, err := TxOf(ctx, tx)
	if err != nil {
		return err
	}
	return o.own.Publish(ctx, own, events...)
}

// AfterCommit runs fn after the commit of tx. It never runs fn if the transaction, or the savepoint
// around this call, is rolled back, or if the outcome is unknown; see sqltx.AfterCommit for the
// limits of fn. Outside a transaction the error is core.ErrNoTransaction, and in an untracked one
// core.ErrUntracked; fn then never runs.
func AfterCommit(ctx context.Context, tx bun.IDB, fn func()) error {
	t, err := TxOf(ctx, tx)
	if err != nil {
		return err
	}
	return sqltx.AfterCommit(t, fn)
}

// TxOf returns the transaction of tx, for core.Outbox.Publish and other packages. tx is a bun.Tx,
// also a savepoint's, or a bun.Conn with an open transaction. Without a transaction TxOf returns an
// error wrapping core.ErrNoTransaction. A transaction that was begun neither on a pool of
// sqltx.Connector nor by RunInTx is not tracked; for its costs see sqltx.TxOf.
func TxOf(ctx context.Context, tx bun.IDB) (core.Tx, error) {
	switch tx := tx.(type) {
	case bun.Tx:
		return sqltx.TxOf(ctx, tx.Tx)
	case *bun.Tx:
		if tx != nil {
			return sqltx.TxOf(ctx, tx.Tx)
		}
	case bun.Conn:
		return sqltx.TxOf(ctx, tx.Conn)
	case *bun.Conn:
		if tx != nil {
			return sqltx.TxOf(ctx, tx.Conn)
		}
	case *bun.DB:
		return nil, fmt.Errorf("%w: a *bun.DB is not in one; use RunInTx or BeginTx and give the bun.Tx",
			core.ErrNoTransaction)
	}
	return nil, fmt.Errorf("%w: got %T; give the bun.Tx", core.ErrNoTransaction, tx)
}

// On registers fn, which derives events from a change of a model of type T. fn is called once for
// each row that a statement inserted, updated or deleted, with the row as the database stored it
// (deleted: as it was). The database names the rows; the models of the statement may be partial, or
// none. fn runs within the transaction of the statement. Outside a transaction, the statement gets
// a transaction of its own. All functions of one type are called, in the order of registration. On
// can be called at any time. Mistakes (a nil argument, a T that is no struct) are reported by every
// Publish and RunInTx, and by Run. A panic of fn goes on to the program, and the transaction does
// not commit.
//
// The statements must run on the *bun.DB of Outbox.DB, or on another one with Outbox.Hook.
func On[T any](ob *Outbox, fn func(op core.Op, model *T) []core.Event) {
	adapter.On(ob.mappers(), fn)
}

// OnContext is On for functions that need the context of the statement or can return an error. If
// fn returns an error, the statement returns it, and its transaction does not commit.
// core.TxFromContext finds the transaction of the statement in ctx, for the time of the call, and
// so does Outbox.Publish with a nil transaction. FromContext finds the bun.Tx if the statement ran
// with the context that RunInTx of the outbox gave. In a statement without a transaction of the
// program fn must not use the *bun.DB: the statement holds its connection, and a pool may have no
// other.
func OnContext[T any](
	ob *Outbox, fn func(ctx context.Context, op core.Op, model *T) ([]core.Event, error),
) {
	adapter.OnContext(ob.mappers(), fn)
}

// OnAll is OnContext for every model whose statements Bun sends, including models first seen later.
// fn gets a pointer to the model's type. except names models that are passed over, such as
// &AuditLog{}. Tables of the outbox and the inbox are passed over too. If the database cannot name
// the rows of a type, because it has no primary key, the type is left out, and one warning is
// logged.
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
