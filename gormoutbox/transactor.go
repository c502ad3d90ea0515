package gormoutbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"

	"gorm.io/gorm"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

// Transactor makes a core.Transactor of db, with or without the plugin. RunInTx runs its function
// in db.Transaction: FromContext returns the transaction. Within a transaction of the same database
// the function runs in a savepoint, also when it was begun with another *gorm.DB on the same
// *sql.DB. If that transaction is over, the error wraps core.ErrNoTransaction. It wraps
// core.ErrOtherTransactor if the context carries a transaction of the pool that GORM has not begun,
// and core.ErrNoTransaction if db is a dry run, so that the function does not run.
//
// RunInTx returns nil only if the transaction is known to have committed. If the database has
// rolled the transaction back and the function ignored the error (a deadlock, or a violated
// constraint on PostgreSQL), RunInTx does not commit. It returns an error wrapping
// core.ErrTxAborted, and no further statement of the transaction reached the database. For that it
// tracks the transaction, with or without the plugin. Without the plugin and sqltx.Connector,
// PrepareStmt is off in the transaction, because prepared statements could not be seen. A pool
// whose transactions cannot be tracked is refused with core.ErrUntracked. If db is nil, not open,
// or of an unsupported dialect, core.CheckTransactor returns an error, and so do the functions that
// take the Transactor. Otherwise RunInTx returns it.
func Transactor(db *gorm.DB) core.Transactor { return &transactor{db: db} }

// FromContext returns the transaction that RunInTx of a Transactor put into ctx, bound to ctx.
// Without one it returns an error wrapping core.ErrNoTransaction. In an OnContext function it is
// the transaction of the statement.
func FromContext(ctx context.Context) (*gorm.DB, error) {
	tx, ok := ctx.Value(ctxKey{}).(*gorm.DB)
	if !ok {
		return nil, fmt.Errorf("%w of GORM in the context", core.ErrNoTransaction)
	}
	return tx.Session(&gorm.Session{NewDB: true, Context: ctx}), nil
}

// Context returns ctx with the transaction of tx in it, for code that looks for the transaction
// there: a Watermill bus or publisher on the outbox, a Transactor. If the plugin is in use, the
// context of tx in a model's own hooks (tx.Statement.Context) has it already. Outside a transaction
// and in a dry run the result is ctx, so that a publisher of an outbox returns
// core.ErrNoTransaction.
//
//	err := db.Transaction(func(tx *gorm.DB) error {
//		...
//		return eventBus.Publish(gormoutbox.Context(ctx, tx), OrderPlaced{...})
//	})
func Context(ctx context.Context, tx *gorm.DB) context.Context {
	t, err := TxOf(ctx, tx)
	if err != nil {
		return ctx
	}
	return contextWith(ctx, tx, t)
}

type ctxKey struct{}

func contextWith(ctx context.Context, db *gorm.DB, tx core.Tx) context.Context {
	return sqltx.ContextWithTx(context.WithValue(ctx, ctxKey{}, db), tx, "gormoutbox")
}

type transactor struct {
	db      *gorm.DB
	checked atomic.Bool // no other plugin has a pool around a transaction's
}

// Validate implements the interface of core.CheckTransactor.
func (r *transactor) Validate() error {
	if r.db == nil || r.db.Config == nil {
		return errors.New("outbox: gormoutbox.Transactor was given a nil *gorm.DB")
	}
	_, err := dialectOf(r.db)
	return err
}

func (r *transactor) RunInTx(ctx context.Context, fn func(context.Context, core.Tx) error) error {
	if err := r.Validate(); err != nil {
		return err
	}
	if fn == nil {
		return errors.New("outbox: RunInTx was given a nil function")
	}
	if isDryRun(r.db) {
		return errDryRun
	}
	if _, ok := core.TxFromContext(ctx); ok {
		if outer, ok := ctx.Value(ctxKey{}).(*gorm.DB); ok && r.samePool(outer) {
			return r.nested(ctx, outer, fn)
		}
		pool, _ := r.db.DB() // nil if another plugin hides it
		if err := sqltx.CheckOwner(ctx, pool, "gormoutbox"); err != nil {
			return err
		}
	}
	db := r.db.WithContext(ctx)
	if err := r.follow(db); err != nil {
		return err
	}
	return db.Transaction(func(gtx *gorm.DB) error { return r.inside(ctx, gtx, fn) })
}

var savepoints atomic.Uint64

// nested runs fn in a savepoint. It does not use GORM's own, whose ROLLBACK TO fails if the context
// has ended. GORM ignores that failure, and on SQLite also a failure of SAVEPOINT.
func (r *transactor) nested(ctx context.Context, outer *gorm.DB, fn func(context.Context, core.Tx) error) error {
	gtx := outer.WithContext(ctx)
	if gtx.Error != nil {
		return gtx.Error
	}
	tx, err := TxOf(ctx, gtx)
	if err != nil {
		return sqltx.OverError(err)
	}
	name := fmt.Sprintf("outbox_%d", savepoints.Add(1))
	return sqltx.RunInSavepoint(ctx, tx, name, func() error { return r.inside(ctx, gtx, fn) })
}

// inside runs fn in a transaction of GORM.
func (r *transactor) inside(ctx context.Context, gtx *gorm.DB, fn func(context.Context, core.Tx) error) error {
	gtx = visible(gtx)
	tx, err := TxOf(ctx, gtx)
	if err != nil {
		return err
	}
	if !tx.Tracked() {
		return fmt.Errorf("%w: the pool %T of the *gorm.DB begins transactions whose end is not observed",
			core.ErrUntracked, r.db.ConnPool)
	}
	if !r.checked.Load() { // plugins put their pools around a statement's when it is built
		built := gtx.Session(&gorm.Session{NewDB: true, DryRun: true}).Exec("SELECT 1")
		if err := checkAround(built.Statement.ConnPool); err != nil {
			return err
		}
		r.checked.Store(true)
	}
	// Without a callback, Commit would not report an unknown outcome.
	tx.OnOutcome(func(core.Outcome) {})
	if err := fn(contextWith(ctx, gtx, tx), tx); err != nil {
		return err
	}
	return tx.Err()
}

// follow makes the transactions of db tracked, even without the plugin. db is a session of this
// package.
func (r *transactor) follow(db *gorm.DB) error {
	d, err := dialectOf(r.db)
	if err != nil {
		return err
	}
	db.Statement.ConnPool = wrapPool(db.Statement.ConnPool, d, nil)
	return nil
}

// visible returns a session of the transaction whose statements pass through its txPool. It does
// not prepare statements, because no callback would report them.
func visible(gtx *gorm.DB) *gorm.DB {
	conn, prepared := unprepared(gtx.Statement.ConnPool)
	tx, ok := conn.(*txPool)
	if !ok || !prepared || tx.pool.ob != nil || !tx.Watched() {
		return gtx
	}
	own := gtx.Session(&gorm.Session{NewDB: true, Context: contextOf(gtx)})
	own.Statement.ConnPool = tx
	return own
}

func (r *transactor) samePool(other *gorm.DB) bool {
	var a, b *sql.DB
	var err error
	if a, err = r.db.DB(); err != nil {
		return false
	}
	if b, err = other.DB(); err != nil {
		return false
	}
	return a == b
}
