package outboxtest

import (
	"context"
	"errors"
	"fmt"

	"github.com/ormoutbox/ormoutbox/core"
)

// Transactor returns a core.Transactor of the repository: what application code under test gets in place of the one of its ORM.
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
	finished = true
	if err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// nested runs fn in a savepoint.
func (t *Tx) nested(ctx context.Context, view core.Tx, fn func(context.Context, core.Tx) error) error {
	t.repo.mu.Lock()
	name := fmt.Sprintf("outbox_%d", len(t.savepoints)+1)
	t.repo.mu.Unlock()
	if _, err := t.Exec(ctx, "SAVEPOINT "+name); err != nil {
		return err
	}
	rollback := func() error {
		_, err := t.Exec(context.WithoutCancel(ctx), "ROLLBACK TO SAVEPOINT "+name)
		return err
	}
	finished := false
	defer func() {
		if !finished {
			_ = rollback()
		}
	}()
	err := fn(ctx, view)
	finished = true
	if err != nil {
		return errors.Join(err, rollback())
	}
	_, err = t.Exec(ctx, "RELEASE SAVEPOINT "+name)
	return err
}
