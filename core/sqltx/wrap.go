package sqltx

import (
	"context"
	"database/sql"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

// Conn runs statements: what a *sql.Tx, *sql.Conn and *sql.DB have in common. Whether one is a
// transaction is for TxOf to find out.
type Conn interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// WrapTx makes a core.Tx of a transaction, for authors of adapters. t follows the transaction and
// is shown its statements by whoever owns conn, not by the result; a nil t means that the
// transaction is not tracked.
func WrapTx(conn Conn, d core.Dialect, t *Tracker) core.Tx {
	return &wrappedTx{conn: conn, dialect: d, tracker: t}
}

type wrappedTx struct {
	conn    Conn
	dialect core.Dialect
	tracker *Tracker
}

func (t *wrappedTx) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	return sqlkit.On{Conn: t.conn}.Exec(ctx, query, args...)
}

func (t *wrappedTx) Query(ctx context.Context, query string, args ...any) (core.Rows, error) {
	return sqlkit.On{Conn: t.conn}.Query(ctx, query, args...)
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
