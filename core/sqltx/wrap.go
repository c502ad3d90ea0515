package sqltx

import (
	"context"
	"database/sql"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

// Conn runs statements. *sql.Tx, *sql.Conn and *sql.DB have its methods. TxOf finds out whether a
// Conn is a transaction.
type Conn interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// WrapTx makes a core.Tx of a transaction, for authors of adapters. t follows the transaction. The
// owner of conn must show t the statements; the result does not. A nil t means that the transaction
// is not tracked.
func WrapTx(conn Conn, d core.Dialect, t *Tracker) core.Tx {
	return &wrappedTx{conn: conn, pool: poolOf(conn), dialect: d, tracker: t}
}

type wrappedTx struct {
	conn    Conn
	pool    *sql.DB
	dialect core.Dialect
	tracker *Tracker
	refused *refusedCommits // of the connection of Connector; nil if it is another one
}

func (t *wrappedTx) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	return sqlkit.On{Conn: t.conn}.Exec(ctx, query, args...)
}

func (t *wrappedTx) Query(ctx context.Context, query string, args ...any) (core.Rows, error) {
	return sqlkit.On{Conn: t.conn}.Query(ctx, query, args...)
}

func (t *wrappedTx) Dialect() core.Dialect { return t.dialect }

func (t *wrappedTx) Pool() *sql.DB { return t.pool }

func (t *wrappedTx) Tracked() bool { return t.tracker != nil }

func (t *wrappedTx) OnOutcome(fn func(core.Outcome)) {
	if t.tracker != nil {
		t.tracker.OnOutcome(fn)
	}
}

// OnRollback does what Tracker.OnRollback does.
func (t *wrappedTx) OnRollback(key any, fn func(to core.RecorderMark)) {
	if t.tracker != nil {
		t.tracker.OnRollback(key, fn)
	}
}

// RefuseCommit does what Tx.RefuseCommit does. Without a connection of Connector it does nothing.
func (t *wrappedTx) RefuseCommit(err error) (lift func()) {
	if t.refused == nil {
		return func() {}
	}
	return t.refused.add(err, t.OnOutcome)
}

func (t *wrappedTx) Err() error {
	if t.tracker == nil {
		return nil
	}
	return t.tracker.Err()
}
