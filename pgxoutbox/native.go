package pgxoutbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

// Publish records events in a transaction of pgx, in one statement. They are sent after the commit.
// It returns the ids of the events. tx is a transaction of a Pool or a nested one, and may be
// wrapped. A nil tx stands for ctx's transaction (see Transactor and Context). For errors see
// core.Outbox.Publish. After an error roll the transaction back.
//
// A pgx.Tx that was not begun on a Pool works as well. It is not tracked: its events commit with
// it, and the poller publishes them. core.Config.RejectUntracked refuses it instead.
func Publish(ctx context.Context, ob *core.Outbox, tx pgx.Tx, events ...core.Event) (ids []string, err error) {
	if ob == nil {
		return nil, fmt.Errorf("pgxoutbox: %w: the *core.Outbox is nil", core.ErrNotInstalled)
	}
	if tx == nil {
		return ob.Publish(ctx, nil, events...)
	}
	own, err := TxOf(ctx, tx)
	if err != nil {
		return nil, err
	}
	return ob.Publish(ctx, own, events...)
}

// AfterCommit runs fn after the commit of tx. It never runs fn if the transaction, or the savepoint
// around this call, is rolled back, or if the outcome is unknown; see sqltx.AfterCommit for the
// limits of fn. In an untracked transaction the error is core.ErrUntracked, and fn never runs.
func AfterCommit(ctx context.Context, tx pgx.Tx, fn func()) error {
	t, err := TxOf(ctx, tx)
	if err != nil {
		return err
	}
	return sqltx.AfterCommit(t, fn)
}

// TxOf returns the transaction of tx, for core.Outbox.Publish and other packages. The type of tx
// may be a wrapper of the transaction of a Pool. TxOf then finds that transaction by an Exec of
// SELECT 1, which the transaction of a Pool answers without a round trip.
func TxOf(ctx context.Context, tx pgx.Tx) (core.Tx, error) {
	switch own := tx.(type) {
	case nil:
		return nil, fmt.Errorf("%w: TxOf was given nil", core.ErrNoTransaction)
	case *nativeTx:
		return &own.own, nil
	case *nativeSavepoint:
		return &own.own, nil
	}
	typ := reflect.TypeOf(tx)
	if typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	if !strings.HasPrefix(typ.PkgPath(), "github.com/jackc/pgx/") {
		var p probe
		if _, err := tx.Exec(context.WithValue(ctx, probeKey{}, &p), probeQuery); err != nil {
			return nil, endedError(err)
		}
		if p.found != nil {
			return &p.found.own, nil
		}
	}
	return untracked{tx}, nil
}

// probe travels in a context to a nativeTx that a foreign type wraps.
type probe struct{ found *nativeTx }

type probeKey struct{}

const probeQuery = "SELECT 1 /* outbox:probe */"

// answer marks a probe as arrived.
func (t *nativeTx) answer(ctx context.Context) bool {
	p, ok := ctx.Value(probeKey{}).(*probe)
	if ok && !t.closed {
		p.found = t
		return true
	}
	return false
}

// endedError is the error of a transaction that is over.
func endedError(err error) error {
	if errors.Is(err, pgx.ErrTxClosed) {
		return fmt.Errorf("%w: %w", core.ErrNoTransaction, err)
	}
	return fmt.Errorf("%w: %w", core.ErrTxAborted, err)
}

// Context returns ctx with the transaction of tx in it, for code that looks for the transaction
// there: a Watermill bus or publisher on the outbox, a Transactor. The context that the Transactor
// gives has it already. Without a transaction the result is ctx.
func Context(ctx context.Context, tx pgx.Tx) context.Context {
	t, err := TxOf(ctx, tx)
	if err != nil {
		return ctx
	}
	return sqltx.ContextWithTx(ctx, t, owner)
}

// FromContext returns the transaction that a Transactor of this package, or Context, put into ctx,
// else an error wrapping core.ErrNoTransaction.
func FromContext(ctx context.Context) (pgx.Tx, error) {
	tx, ok := core.TxFromContext(ctx)
	switch own := tx.(type) {
	case *nativeCore:
		return own.of, nil
	case untracked:
		return own.tx, nil
	}
	if ok {
		return nil, fmt.Errorf("%w of package pgxoutbox in the context, but a %T", core.ErrNoTransaction, tx)
	}
	return nil, fmt.Errorf("%w in the context", core.ErrNoTransaction)
}

// nativeCore is a nativeTx as a core.Tx.
type nativeCore struct{ of *nativeTx }

var _ core.Tx = (*nativeCore)(nil)

// Exec implements core.Tx.
func (c *nativeCore) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	if !c.of.closed && sqltx.FlushAsked(ctx) {
		return 0, c.of.session.flush(ctx, "Flush")
	}
	n, err := querier{c.of}.Exec(ctx, query, args...)
	return n, doneError(err)
}

// Query implements core.Tx.
func (c *nativeCore) Query(ctx context.Context, query string, args ...any) (core.Rows, error) {
	rows, err := querier{c.of}.Query(ctx, query, args...)
	return rows, doneError(err)
}

// doneError lets code of other packages recognise a transaction that is over.
func doneError(err error) error {
	if errors.Is(err, pgx.ErrTxClosed) {
		return fmt.Errorf("%w: %w", sql.ErrTxDone, err)
	}
	return err
}

// Dialect implements core.Tx.
func (c *nativeCore) Dialect() core.Dialect { return core.Postgres }

// Pool is for sqloutbox, which recognises transactions of another database by it.
func (c *nativeCore) Pool() sqloutbox.Pool { return access{c.of.pool} }

// PoolStats has the limit and the use of the pool, for the warning of package once about functions
// that use up the pool.
func (c *nativeCore) PoolStats() sql.DBStats {
	s := c.of.pool.Stat()
	return sql.DBStats{MaxOpenConnections: int(s.MaxConns()), InUse: int(s.AcquiredConns())}
}

// Tracked implements core.Tx.
func (c *nativeCore) Tracked() bool { return true }

// OnOutcome implements core.Tx.
func (c *nativeCore) OnOutcome(fn func(core.Outcome)) { c.of.tracker.OnOutcome(fn) }

// OnRollback implements sqltx.Tracker's OnRollback.
func (c *nativeCore) OnRollback(key any, fn func(to core.RecorderMark)) {
	c.of.tracker.OnRollback(key, fn)
}

// Err implements core.Tx.
func (c *nativeCore) Err() error {
	t := c.of
	t.look()
	if err := t.tracker.Err(); err != nil {
		return err
	}
	switch {
	case t.refused != nil:
		return fmt.Errorf("%w: %w", core.ErrTxAborted, t.refused)
	case t.session.closed():
		return fmt.Errorf("%w: %w", core.ErrTxAborted, errConnClosed)
	case t.session.status() == statusFailed:
		return fmt.Errorf("%w: an earlier statement failed", core.ErrTxAborted)
	}
	return nil
}

// RefuseCommit is for sqltx.RunInSavepoint.
func (c *nativeCore) RefuseCommit(err error) (lift func()) {
	c.of.refuse(err)
	return func() { c.of.refused = nil }
}

// untracked is a transaction that was not begun on a Pool, as a core.Tx.
type untracked struct{ tx pgx.Tx }

var _ core.Tx = untracked{}

// Exec implements core.Tx.
func (u untracked) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	n, err := querier{u.tx}.Exec(ctx, query, args...)
	return n, doneError(err)
}

// Query implements core.Tx.
func (u untracked) Query(ctx context.Context, query string, args ...any) (core.Rows, error) {
	rows, err := querier{u.tx}.Query(ctx, query, args...)
	return rows, doneError(err)
}

// Dialect implements core.Tx.
func (u untracked) Dialect() core.Dialect { return core.Postgres }

// Tracked implements core.Tx: it is false.
func (u untracked) Tracked() bool { return false }

// OnOutcome implements core.Tx.
func (u untracked) OnOutcome(func(core.Outcome)) {}

// Err implements core.Tx.
func (u untracked) Err() error {
	conn := u.tx.Conn()
	if conn == nil {
		return nil
	}
	switch conn.PgConn().TxStatus() {
	case statusFailed:
		return fmt.Errorf("%w: an earlier statement failed", core.ErrTxAborted)
	case statusNone: // it is over, and pgx says so, or a text ended it: what is inserted now would commit by itself
		ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
		defer cancel()
		_, err := u.tx.Exec(ctx, "")
		if err == nil {
			err = errEndedByText
		}
		return endedError(err)
	}
	return nil
}

var errEndedByText = errors.New("a statement ended the transaction")
