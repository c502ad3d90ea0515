package bunoutbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/uptrace/bun"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

// A program calls the functions below in Bun's hooks of models, one line each:
//
//	func (*Order) BeforeInsert(ctx context.Context, q *bun.InsertQuery) error {
//		return bunoutbox.BeforeInsert(ctx, q)
//	}
//	func (*Order) AfterInsert(ctx context.Context, q *bun.InsertQuery) error  { return bunoutbox.AfterInsert(ctx, q) }

// BeforeInsert is for the BeforeInsert hook of a model whose statements must not run without the
// outbox. It returns an error wrapping core.ErrNotInstalled when the *bun.DB does not have the hook
// of an Outbox, and one wrapping core.ErrNoTransaction outside a tracked transaction. After an
// error Bun does not execute the statement.
func BeforeInsert(ctx context.Context, q *bun.InsertQuery) error { return beforeModel(ctx, q) }

// BeforeUpdate is BeforeInsert for updates.
func BeforeUpdate(ctx context.Context, q *bun.UpdateQuery) error { return beforeModel(ctx, q) }

// BeforeDelete is BeforeInsert for deletes, soft deletes too.
func BeforeDelete(ctx context.Context, q *bun.DeleteQuery) error { return beforeModel(ctx, q) }

// AfterInsert is for the AfterInsert hook of a model. If the events of the statement could not be
// written, AfterInsert makes the statement fail. Without AfterInsert the statement succeeds, and
// the COMMIT of its transaction rolls back and returns the error.
func AfterInsert(ctx context.Context, q *bun.InsertQuery) error { return afterModel(ctx, q) }

// AfterUpdate is AfterInsert for updates.
func AfterUpdate(ctx context.Context, q *bun.UpdateQuery) error { return afterModel(ctx, q) }

// AfterDelete is AfterInsert for deletes, soft deletes too.
func AfterDelete(ctx context.Context, q *bun.DeleteQuery) error { return afterModel(ctx, q) }

// finder is in the context of a statement. Each query hook that sees it adds its Outbox.
type finder struct{ found []*Outbox }

type finderKey struct{}

func beforeModel(ctx context.Context, q query) error {
	return inModelHook(ctx, q, func(tx *sqltx.VisitedTx) error { return tx.Err() })
}

func afterModel(ctx context.Context, q query) error {
	return inModelHook(ctx, q, func(tx *sqltx.VisitedTx) error { return tx.CommitRefusal() })
}

func inModelHook(ctx context.Context, q query, fn func(tx *sqltx.VisitedTx) error) error {
	f := &finder{}
	err := visit(context.WithValue(ctx, finderKey{}, f), q, fn)
	if len(f.found) == 0 {
		if err != nil && !errors.Is(err, core.ErrUntracked) && !errors.Is(err, core.ErrNoTransaction) {
			return errors.Join(errNoHook, err)
		}
		return errNoHook
	}
	return err
}

var errNoHook = fmt.Errorf("%w: the *bun.DB does not have the query hook: use that of ob.DB(), or the result of "+
	"db.WithQueryHook(ob.Hook())", core.ErrNotInstalled)
