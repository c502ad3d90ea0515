package bunoutbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/uptrace/bun"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/adapter"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

// RunInTx runs fn in a tracked transaction, whether or not the pool was opened with
// sqltx.Connector. It commits when fn returns nil, and rolls back when fn returns an error or
// panics. All changes of tx by fn are tracked, with any context. The context given to fn carries
// tx: FromContext, and Publish with a nil transaction, find it. Within such a context RunInTx runs
// fn in a savepoint. If that transaction is over, the error wraps core.ErrNoTransaction. If the
// context carries a transaction of the pool that RunInTx of this package did not begin, it wraps
// core.ErrOtherTransactor. RunInTx returns nil only if the transaction is known to have committed.
// If the database has rolled it back and fn ignored the error (a deadlock, or a violated constraint
// on PostgreSQL), RunInTx does not commit, and returns an error wrapping core.ErrTxAborted.
func (o *Outbox) RunInTx(ctx context.Context, fn func(ctx context.Context, tx bun.Tx) error) error {
	return o.RunInTxOptions(ctx, nil, fn)
}

// RunInTxOptions is RunInTx with options for a new transaction. They do not apply to a savepoint.
func (o *Outbox) RunInTxOptions(ctx context.Context, opts *sql.TxOptions,
	fn func(ctx context.Context, tx bun.Tx) error,
) error {
	if err := o.ready(); err != nil {
		return err
	}
	if fn == nil {
		return errNilFunction
	}
	return runInTx(ctx, o.db, o.own.Dialect(), opts,
		func(ctx context.Context, tx bun.Tx, _ core.Tx) error { return fn(ctx, tx) })
}

// Transactor makes a core.Transactor of db, with or without the hook of an Outbox. Its RunInTx does
// the same as Outbox.RunInTx; FromContext returns the bun.Tx to work with. If db is nil or of an
// unsupported dialect, an error is returned by core.CheckTransactor, by functions that take the
// Transactor (such as an inbox's), and otherwise by RunInTx.
func Transactor(db *bun.DB) core.Transactor { return &transactor{db: db} }

// FromContext returns the transaction that RunInTx or Context put into ctx. Without one it returns
// an error wrapping core.ErrNoTransaction.
func FromContext(ctx context.Context) (bun.Tx, error) {
	in, ok := ctx.Value(ctxKey{}).(inTx)
	if !ok {
		return bun.Tx{}, fmt.Errorf("%w of Bun in the context", core.ErrNoTransaction)
	}
	return in.tx, nil
}

// Context returns ctx with the transaction of tx in it, for code that looks for the transaction
// there: a Watermill bus or publisher on the outbox, a Transactor. The context that RunInTx of the
// outbox gives has it already. Outside a transaction the result is ctx. A Transactor joins a
// tracked bun.Tx with a savepoint, and refuses other transactions of its pool with
// core.ErrOtherTransactor.
func Context(ctx context.Context, tx bun.IDB) context.Context {
	t, err := TxOf(ctx, tx)
	if err != nil {
		return ctx
	}
	if p, ok := t.(interface{ Pool() *sql.DB }); ok && t.Tracked() {
		switch tx := tx.(type) {
		case bun.Tx:
			ctx = context.WithValue(ctx, ctxKey{}, inTx{tx, p.Pool()})
		case *bun.Tx:
			ctx = context.WithValue(ctx, ctxKey{}, inTx{*tx, p.Pool()})
		}
	}
	return sqltx.ContextWithTx(ctx, t, "bunoutbox")
}

type ctxKey struct{}

// inTx is kept in a context. It has the innermost transaction or savepoint, and its pool.
type inTx struct {
	tx   bun.Tx
	pool *sql.DB
}

var errNilFunction = errors.New("outbox: RunInTx was given a nil function")

type transactor struct{ db *bun.DB }

// Validate is for core.CheckTransactor.
func (r *transactor) Validate() error {
	if r.db == nil || r.db.DB == nil {
		return errors.New("outbox: bunoutbox.Transactor was given a nil *bun.DB")
	}
	_, err := dialectOf(r.db)
	return err
}

func (r *transactor) RunInTx(ctx context.Context, fn func(context.Context, core.Tx) error) error {
	if fn == nil {
		return errNilFunction
	}
	if err := r.Validate(); err != nil {
		return err
	}
	d, err := dialectOf(r.db)
	if err != nil {
		return err
	}
	return runInTx(ctx, r.db, d, nil, func(ctx context.Context, _ bun.Tx, tx core.Tx) error { return fn(ctx, tx) })
}

type body func(ctx context.Context, btx bun.Tx, tx core.Tx) error

func runInTx(ctx context.Context, db *bun.DB, d core.Dialect, opts *sql.TxOptions, fn body) (err error) {
	if _, ok := core.TxFromContext(ctx); ok {
		if outer, ok := ctx.Value(ctxKey{}).(inTx); ok && outer.pool == db.DB {
			return nested(ctx, outer, fn)
		}
		if err := sqltx.CheckOwner(ctx, db.DB, "bunoutbox"); err != nil {
			return err
		}
	}
	return sqltx.RetryBegin(db.DB, func() (began bool, err error) { return beginAndRun(ctx, db, d, opts, fn) })
}

// beginAndRun runs fn in a new transaction.
func beginAndRun(ctx context.Context, db *bun.DB, d core.Dialect, opts *sql.TxOptions,
	fn body,
) (began bool, err error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return false, err
	}
	tracked, err := sqltx.TrackConn(ctx, conn.Conn, d)
	if err != nil {
		_ = conn.Close()
		return false, err
	}
	conn.Conn = tracked
	defer func() { _ = conn.Close() }() // the transaction has ended, and reported its outcome
	err = conn.RunInTx(ctx, opts, func(bunCtx context.Context, btx bun.Tx) error {
		began = true
		return inside(bunCtx, inTx{tx: btx, pool: db.DB}, func(ctx context.Context, btx bun.Tx, tx core.Tx) error {
			// Without a callback, Commit would not report an unknown outcome.
			tx.OnOutcome(func(core.Outcome) {})
			return fn(ctx, btx, tx)
		})
	})
	return began, err
}

// nested runs fn in a savepoint. The savepoint is rolled back even if the context has ended,
// because that end may be the reason for the rollback.
func nested(ctx context.Context, outer inTx, fn body) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	sp, err := outer.tx.BeginTx(context.WithoutCancel(ctx), nil)
	if err != nil {
		return sqltx.OverError(err)
	}
	ended := false
	defer func() {
		if !ended { // fn panicked, or called runtime.Goexit
			_ = sp.Rollback()
		}
	}()
	err = inside(ctx, inTx{tx: sp, pool: outer.pool}, fn)
	if err == nil {
		err = sp.Commit()
	}
	ended = true
	if err != nil {
		if undo := sp.Rollback(); undo != nil && !errors.Is(undo, sql.ErrTxDone) {
			return errors.Join(err, adapter.Errorf("outbox: roll back: %w", undo))
		}
		return err
	}
	return nil
}

// inside runs fn with a context that carries its transaction.
func inside(ctx context.Context, in inTx, fn body) error {
	tx, err := TxOf(ctx, in.tx)
	if err != nil {
		return err
	}
	ctx = sqltx.ContextWithTx(context.WithValue(ctx, ctxKey{}, in), tx, "bunoutbox")
	if err := fn(ctx, in.tx, tx); err != nil {
		return err
	}
	return tx.Err()
}
