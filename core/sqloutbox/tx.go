package sqloutbox

import (
	"context"
	"database/sql"

	"github.com/ormoutbox/ormoutbox/core"
)

// Conn runs statements: what a *sql.Tx, *sql.Conn and *sql.DB have in common. Whether one is a transaction is for TxOf to find out.
type Conn interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// WrapTx makes a core.Tx of a transaction, for authors of adapters. t follows the transaction and is shown its statements by
// whoever owns conn, not by the result; a nil t means that the transaction is not tracked.
func WrapTx(conn Conn, d core.Dialect, t *core.Tracker) core.Tx {
	return &wrappedTx{conn: conn, dialect: d, tracker: t}
}

type wrappedTx struct {
	conn    Conn
	dialect core.Dialect
	tracker *core.Tracker
}

func (t *wrappedTx) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	return execRows(ctx, t.conn, query, args)
}

func (t *wrappedTx) Query(ctx context.Context, query string, args ...any) (core.Rows, error) {
	return queryRows(ctx, t.conn, query, args)
}

func (t *wrappedTx) Dialect() core.Dialect { return t.dialect }

func (t *wrappedTx) Tracked() bool { return t.tracker != nil }

func (t *wrappedTx) OnOutcome(fn func(core.Outcome)) {
	if t.tracker != nil {
		t.tracker.OnOutcome(fn)
	}
}

func (t *wrappedTx) Err() error {
	if t.tracker == nil {
		return nil
	}
	return t.tracker.Err()
}

func execRows(ctx context.Context, conn Conn, query string, args []any) (int64, error) {
	res, err := conn.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

func queryRows(ctx context.Context, conn Conn, query string, args []any) (core.Rows, error) {
	rows, err := conn.QueryContext(ctx, query, args...) //nolint:rowserrcheck // the caller reads them
	if err != nil {
		return nil, err // not a nil *sql.Rows in a non-nil interface
	}
	return rows, nil
}
