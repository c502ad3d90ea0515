package sqltx

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"

	"github.com/ormoutbox/ormoutbox/core"
)

// ContextWithTx is core.ContextWithTx for authors of adapters. owner names what runs the
// transaction for CheckOwner, such as gormoutbox.
func ContextWithTx(ctx context.Context, tx core.Tx, owner string) context.Context {
	return core.ContextWithTx(context.WithValue(ctx, ownerKey{}, owned{tx, owner}), tx)
}

// CheckOwner is for authors of adapters. RunInTx calls it before it begins a transaction on pool,
// after it has found none of its own in ctx. CheckOwner returns an error wrapping
// core.ErrOtherTransactor if ctx carries another open transaction of that pool. owner names the
// caller. A transaction of another pool, or of one that is not known, is no error.
func CheckOwner(ctx context.Context, pool *sql.DB, owner string) error {
	tx, ok := core.TxFromContext(ctx)
	if !ok || pool == nil {
		return nil
	}
	if t, ok := tx.(interface{ Pool() *sql.DB }); !ok || t.Pool() != pool {
		return nil
	}
	if errors.Is(tx.Err(), core.ErrNoTransaction) {
		return nil // it is over
	}
	return fmt.Errorf("%w: the context of RunInTx of %s carries an open transaction of %s on the same *sql.DB, and "+
		"a second one would commit by itself: use the Transactor that began it, or take the transaction out of the "+
		"context with core.ContextWithTx(ctx, nil)", core.ErrOtherTransactor, owner, ownerOf(ctx, tx))
}

type ownerKey struct{}

type owned struct {
	tx    core.Tx
	owner string
}

// ownerOf names what runs tx.
func ownerOf(ctx context.Context, tx core.Tx) string {
	if o, ok := ctx.Value(ownerKey{}).(owned); ok && reflect.ValueOf(tx).Comparable() && o.tx == tx {
		return o.owner
	}
	return fmt.Sprintf("%T", tx) // given to core.ContextWithTx
}
