package bunoutbox

import (
	"context"
	"database/sql"
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

// BeforeInsert is for the BeforeInsert hook of a model whose statements must not run without the
// outbox. It returns an error wrapping core.ErrNotInstalled when the *bun.DB does not have the hook
// of an Outbox, and one wrapping core.ErrUntracked in an untracked transaction. After an error Bun
// does not execute the statement.
func BeforeInsert(ctx context.Context, q *bun.InsertQuery) error { return beforeModel(ctx, q) }

// BeforeUpdate is BeforeInsert for updates.
func BeforeUpdate(ctx context.Context, q *bun.UpdateQuery) error { return beforeModel(ctx, q) }

// BeforeDelete is BeforeInsert for deletes, soft deletes too.
func BeforeDelete(ctx context.Context, q *bun.DeleteQuery) error { return beforeModel(ctx, q) }

// finder is in the context of a statement. Each query hook that sees it adds its Outbox.
type finder struct{ found []*Outbox }

type finderKey struct{}

func beforeModel(ctx context.Context, q query) error {
	f := &finder{}
	err := sqltx.Visit(context.WithValue(ctx, finderKey{}, f), func(ctx context.Context, text string) error {
		_, err := rawOf(ctx, q, text).Exec(ctx)
		return err
	}, func(tx *sqltx.VisitedTx) error { return tx.Err() })
	if errors.Is(err, core.ErrNoTransaction) && !errors.Is(err, sql.ErrTxDone) {
		err = nil // the statement gets one of its own
	}
	if len(f.found) == 0 {
		if err != nil && !errors.Is(err, core.ErrUntracked) {
			return errors.Join(errNoHook, err)
		}
		return errNoHook
	}
	return err
}

var errNoHook = fmt.Errorf("%w: the *bun.DB does not have the query hook: use that of ob.DB(), or the result of "+
	"db.WithQueryHook(ob.Hook())", core.ErrNotInstalled)
