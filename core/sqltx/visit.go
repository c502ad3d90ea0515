package sqltx

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

// visitQuery is answered by a connection of Connector, as probeQuery is.
const visitQuery = "SELECT 1 /* " + probeMark + " visit */"

type visitKey struct{}

type visit struct {
	fn    func(*VisitedTx) error
	begin bool // a transaction, if the connection is in none
	seen  bool
	err   error
}

// Visit runs fn in the transaction behind exec. It is for authors of adapters whose ORM lets a hook
// run a statement in the transaction of its own statement, but does not show the transaction. exec
// must run the given statement there, with the given context. The connection answers the statement
// without sending it.
//
// fn runs within that call of exec. It must do its work through the VisitedTx alone, because the
// transaction that exec uses waits for it. The VisitedTx cannot be used afterwards. Visit returns
// the error of fn. Visit returns an error wrapping core.ErrNoTransaction if the connection is in no
// transaction. It returns an error wrapping core.ErrUntracked if the connection is neither of
// Connector nor of TrackConn; the statement, a SELECT of a constant, has then been executed.
func Visit(ctx context.Context, exec func(ctx context.Context, query string) error,
	fn func(tx *VisitedTx) error,
) error {
	return (&visit{fn: fn}).by(ctx, exec)
}

// by runs the visit.
func (v *visit) by(ctx context.Context, exec func(ctx context.Context, query string) error) error {
	err := exec(context.WithValue(ctx, visitKey{}, v), visitQuery)
	switch {
	case v.seen:
		return v.err
	case err != nil:
		return probeError(err)
	}
	return fmt.Errorf("%w: open the pool with sqltx.Connector", core.ErrUntracked)
}

// VisitedTx is the transaction that Visit found.
type VisitedTx struct {
	visited *trackingConn
	tracker *Tracker // of the visited transaction: the connection may be in another one later
	refused *refusedCommits
	began   bool        // by the visit
	conn    *sql.Conn   // made when it is needed
	rows    []*sql.Rows // results of Query; open rows would keep conn in use
	ended   bool
}

var _ core.Tx = (*VisitedTx)(nil)

var errVisitOver = fmt.Errorf("%w: that of a Visit was used after it", core.ErrNoTransaction)

// visit answers visitQuery. Its error is that of a BEGIN.
func (c *trackingConn) visit(ctx context.Context, v *visit) error {
	if c.tracker == nil && v.begin {
		return c.visitInOwn(ctx, v)
	}
	v.seen = true
	if c.tracker == nil {
		v.err = fmt.Errorf("%w: the connection of this statement is not in one", core.ErrNoTransaction)
		return nil
	}
	v.err = c.visited(v.fn, false)
	return nil
}

// visited runs fn in the transaction of the connection.
func (c *trackingConn) visited(fn func(*VisitedTx) error, began bool) error {
	tx := &VisitedTx{visited: c, tracker: c.tracker, refused: c.refused, began: began}
	defer tx.end()
	return fn(tx)
}

func (t *VisitedTx) end() {
	t.ended = true
	for _, rows := range t.rows {
		_ = rows.Close()
	}
	if t.conn != nil {
		_ = t.conn.Close()
	}
}

// session returns the *sql.Conn that runs statements on the connection while its own pool waits.
func (t *VisitedTx) session(ctx context.Context) (_ *sql.Conn, err error) {
	if t.ended {
		return nil, errVisitOver
	}
	if t.conn == nil {
		t.conn, err = lentConn{trackingConn: t.visited}.open(ctx)
	}
	return t.conn, err
}

// Exec implements core.Tx.
func (t *VisitedTx) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	conn, err := t.session(ctx)
	if err != nil {
		return 0, err
	}
	return sqlkit.On{Conn: conn}.Exec(ctx, query, args...)
}

// Query implements core.Tx.
func (t *VisitedTx) Query(ctx context.Context, query string, args ...any) (core.Rows, error) {
	conn, err := t.session(ctx)
	if err != nil {
		return nil, err
	}
	rows, err := conn.QueryContext(ctx, query, args...) //nolint:rowserrcheck // the caller checks rows.Err
	if err != nil {
		return nil, err
	}
	t.rows = append(t.rows, rows)
	return rows, nil
}

// ExecContext is that of *sql.Conn.
func (t *VisitedTx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	conn, err := t.session(ctx)
	if err != nil {
		return nil, err
	}
	return conn.ExecContext(ctx, query, args...)
}

// QueryContext is that of *sql.Conn. Close the rows before the visit ends.
func (t *VisitedTx) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	conn, err := t.session(ctx)
	if err != nil {
		return nil, err
	}
	return conn.QueryContext(ctx, query, args...)
}

// Began reports whether VisitOrBegin has begun the transaction.
func (t *VisitedTx) Began() bool { return t.began }

// Dialect implements core.Tx.
func (t *VisitedTx) Dialect() core.Dialect { return t.visited.dialect }

// Pool returns the pool whose connection was lent to TrackConn, else nil: it is not known.
func (t *VisitedTx) Pool() *sql.DB { return t.visited.lender }

// Tracked implements core.Tx: it is true.
func (t *VisitedTx) Tracked() bool { return true }

// OnOutcome implements core.Tx.
func (t *VisitedTx) OnOutcome(fn func(core.Outcome)) { t.tracker.OnOutcome(fn) }

// OnRollback does what Tracker.OnRollback does.
func (t *VisitedTx) OnRollback(key any, fn func(to core.RecorderMark)) { t.tracker.OnRollback(key, fn) }

// Err implements core.Tx. After the visit it returns an error wrapping core.ErrNoTransaction.
func (t *VisitedTx) Err() error {
	if t.ended {
		return errVisitOver
	}
	return t.tracker.Err()
}

// RefuseCommit makes the COMMIT of the transaction roll back and return err, unless the changes so
// far are rolled back to a savepoint before, or lift is called. It may be called after the visit.
func (t *VisitedTx) RefuseCommit(err error) (lift func()) {
	return t.refused.add(err, t.OnOutcome)
}

// CommitRefusal returns the error of the first RefuseCommit that was not undone by a rollback to a
// savepoint, else nil.
func (t *VisitedTx) CommitRefusal() error { return t.refused.standing() }

// rollbackInstead rolls back in place of a COMMIT that was refused.
func (t *trackingTx) rollbackInstead(cause error) error {
	rollback := t.rollback()
	t.conn.ended(rollback)
	t.tracker.RolledBack()
	return notCommitted(cause, rollback)
}
