package sqltx

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"reflect"
	"strings"

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

var errVisitOver = fmt.Errorf("%w: the transaction of a Visit was used after it", core.ErrNoTransaction)

// visit answers visitQuery. It returns the error of a BEGIN.
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

// ExecContext is as for *sql.Conn.
func (t *VisitedTx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	conn, err := t.session(ctx)
	if err != nil {
		return nil, err
	}
	return conn.ExecContext(ctx, query, args...)
}

// QueryContext is as for *sql.Conn. Close the rows before the visit ends.
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

// OnRollback is as Tracker.OnRollback.
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

// VisitOrBegin is Visit. But if the connection is in no transaction, it begins one within the same
// call of exec, and commits it when fn returns nil. So callers need not distinguish whether exec
// runs on a pool, on a pinned connection or in a transaction, and a pool of one connection is
// enough. Began of the VisitedTx reports it. If fn returns an error or panics, that transaction is
// rolled back. If its COMMIT fails, VisitOrBegin returns that error.
//
// A transaction that was begun by a text, such as BEGIN, is not known, and refused with
// core.ErrUntracked.
func VisitOrBegin(ctx context.Context, exec func(ctx context.Context, query string) error,
	fn func(tx *VisitedTx) error,
) error {
	return (&visit{fn: fn, begin: true}).by(ctx, exec)
}

// visitInOwn is visit in a transaction of its own. If that cannot begin, the error is for
// database/sql, which may try another connection.
func (c *trackingConn) visitInOwn(ctx context.Context, v *visit) error {
	if c.inTextTx() {
		v.seen = true
		v.err = fmt.Errorf("%w: the transaction of this statement was begun by a text: use BeginTx",
			core.ErrUntracked)
		return nil
	}
	// The end of ctx may end BEGIN. But some drivers use the context of BEGIN for COMMIT too.
	own, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stop := context.AfterFunc(ctx, cancel)
	tx, err := c.BeginTx(own, driver.TxOptions{})
	stop()
	if err != nil {
		return err
	}
	v.seen = true
	ended := false
	defer func() {
		if !ended { // fn panicked, or called runtime.Goexit
			_ = tx.Rollback()
		}
	}()
	v.err = own.Err()
	if v.err == nil {
		v.err = c.visited(v.fn, true)
	}
	ended = true
	if v.err != nil {
		_ = tx.Rollback() // if that fails, the connection is lost, and the changes with it
		return nil
	}
	v.err = tx.Commit()
	return nil
}

// inTextTx reports whether the connection is in a transaction that no tracker follows.
func (c *trackingConn) inTextTx() bool {
	state := c.driverState()
	return c.textTx || state != stateNone && c.state != nil
}

// noteText notes a text that begins or ends such a transaction.
func (c *trackingConn) noteText(query string, err error) {
	query = strings.TrimLeft(query, " \t\r\n;")
	is := func(word string) bool { return len(query) >= len(word) && strings.EqualFold(query[:len(word)], word) }
	ends := is("COMMIT") || is("END") || is("ABORT") ||
		is("ROLLBACK") && !strings.Contains(strings.ToUpper(query), " TO ")
	switch {
	case err != nil && ends && c.dialect == core.MySQL: // SQLite lets the program try again
		c.ended(err)
	case err != nil:
	case is("BEGIN"), is("START TRANSACTION"):
		c.textTx = true
	case ends:
		c.textTx = false
	}
}

// QueryOnce is QueryContext for a text with values in it, which hardly comes again. pgx does not
// prepare it: that would be another round trip.
func (t *VisitedTx) QueryOnce(ctx context.Context, query string) (*sql.Rows, error) {
	conn, err := t.session(ctx)
	if err != nil {
		return nil, err
	}
	if mode := t.visited.execMode(); mode != nil {
		return conn.QueryContext(ctx, query, mode)
	}
	return conn.QueryContext(ctx, query)
}

// execMode returns pgx.QueryExecModeExec if the driver is pgx, and prepares statements unless it
// gets this argument. A wrapper of pgx might not accept the argument.
func (c *trackingConn) execMode() any {
	if c.modeAsked {
		return c.mode
	}
	c.modeAsked = true
	const exec = 4
	if mode := pgxModeOf(pgxConn(c.inner)); mode.IsValid() && mode.Int() < exec {
		once := reflect.New(mode.Type()).Elem()
		once.SetInt(exec)
		if fmt.Sprint(once.Interface()) == "exec" {
			c.mode = once.Interface()
		}
	}
	return c.mode
}
