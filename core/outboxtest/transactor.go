package outboxtest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

// Transactor returns a core.Transactor of the repository. Application code under test gets it
// instead of the Transactor of its ORM.
func (r *Repository) Transactor() core.Transactor { return transactor{r} }

type transactor struct{ repo *Repository }

// RunInTx implements core.Transactor.
func (tr transactor) RunInTx(ctx context.Context, fn func(context.Context, core.Tx) error) error {
	if outer, ok := core.TxFromContext(ctx); ok {
		if t, err := tr.repo.txOf(outer); err == nil {
			return t.nested(ctx, outer, fn)
		}
	}
	tx, err := tr.repo.Begin(ctx)
	if err != nil {
		return err
	}
	finished := false
	defer func() {
		if !finished { // fn panicked
			_ = tx.Rollback()
		}
	}()
	err = fn(core.ContextWithTx(ctx, tx), tx)
	if err == nil {
		err = tx.Err() // fn may have ignored a statement that ended the transaction
	}
	finished = true
	if err != nil {
		if rollback := tx.Rollback(); !errors.Is(rollback, sql.ErrTxDone) {
			err = errors.Join(err, rollback)
		}
		return err
	}
	return tx.Commit()
}

// nested runs fn in a savepoint.
func (t *Tx) nested(ctx context.Context, view core.Tx, fn func(context.Context, core.Tx) error) error {
	t.repo.mu.Lock()
	name := fmt.Sprintf("outbox_%d", len(t.savepoints)+1)
	t.repo.mu.Unlock()
	return sqltx.RunInSavepoint(ctx, t, name, func() error { return fn(ctx, view) })
}
