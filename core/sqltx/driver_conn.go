package sqltx

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/mark"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlerr"
)

// trackingConn implements every optional interface of a driver.Conn. Where the driver lacks one, it
// does what database/sql does without it. database/sql never uses a driver.Conn from two goroutines
// at once, so the tracker needs no lock.
type trackingConn struct {
	inner   driver.Conn
	dialect core.Dialect
	lender  *sql.DB         // the pool that lent the connection, nil if it is not known
	tracker *Tracker        // tracker of the open transaction, else nil
	refused *refusedCommits // the RefuseCommit calls of that transaction
	state   func() txState  // asks the driver for the state; nil if the driver has none
	asked   bool            // state was looked up
	textTx  bool            // in a transaction that was begun by a text
	mode    any             // the argument with which pgx does not prepare a statement
	// whether mode was looked up
	modeAsked bool
	// the pool must not use the connection again: the driver found it dead when a transaction was
	// about to begin, or its server takes no writes any more
	dead bool
	// the end of a transaction failed, so that the transaction may be open
	unended  bool
	readOnly bool // the transaction was asked for as one
	prepared prepared
}

var (
	_ driver.Conn               = (*trackingConn)(nil)
	_ driver.ConnBeginTx        = (*trackingConn)(nil)
	_ driver.ConnPrepareContext = (*trackingConn)(nil)
	_ driver.ExecerContext      = (*trackingConn)(nil)
	_ driver.QueryerContext     = (*trackingConn)(nil)
	_ driver.NamedValueChecker  = (*trackingConn)(nil)
	_ driver.Pinger             = (*trackingConn)(nil)
	_ driver.SessionResetter    = (*trackingConn)(nil)
	_ driver.Validator          = (*trackingConn)(nil)
)

// Raw returns the driver's own connection.
func (c *trackingConn) Raw() driver.Conn { return c.inner }

// before is called before each statement. guarded: after must release the savepoint that before has
// set.
func (c *trackingConn) before(ctx context.Context, query string) (guarded bool, err error) {
	if c.tracker == nil {
		return false, c.gone()
	}
	opaque, err := c.tracker.Before(query)
	if err == nil {
		err = c.outside(ctx)
	}
	if err != nil || !opaque {
		return false, err
	}
	if err := executor(c.exec).setGuard(ctx); err != nil {
		c.after(ctx, "", err, false)
		return false, err
	}
	return true, nil
}

// outside returns an error if ctx is Publish's and its INSERT would commit on its own, or would be
// refused. A text that the tracker cannot read may have ended the transaction, which on PostgreSQL
// shows in the driver's state. Elsewhere the tracker asks the database after such a text.
func (c *trackingConn) outside(ctx context.Context) error {
	if c.dialect != core.Postgres || !mark.IsInsert(ctx) {
		return nil
	}
	switch c.driverState() {
	case stateNone:
		c.tracker.Observe("COMMIT", nil)
		return c.tracker.Err()
	case stateFailed:
		return fmt.Errorf("%w: an earlier statement failed", core.ErrTxAborted)
	case stateOpen, stateUnknown:
	}
	return nil
}

// after shows the tracker a statement with its result. It is called when the rows of the statement,
// if any, have been read.
func (c *trackingConn) after(ctx context.Context, query string, err error, guarded bool) {
	// After a failover, the address may lead to another server, and this one stays without writes.
	c.dead = c.dead || !c.readOnly && sqlerr.ReadOnly(err)
	switch {
	case c.tracker == nil:
		c.noteText(query, err)
		return
	case guarded:
		executor(c.exec).releaseGuard(ctx, c.tracker, err)
	case errors.Is(err, driver.ErrSkip):
		return
	default:
		c.tracker.Observe(query, err)
	}
	if c.dialect != core.Postgres && c.tracker.Doubt() != nil {
		c.tracker.Resolve(executor(c.exec).ask(ctx, c.dialect))
	}
}

// exec runs a statement of this package.
func (c *trackingConn) exec(ctx context.Context, query string) (err error) {
	switch e := c.inner.(type) {
	case driver.ExecerContext:
		_, err = e.ExecContext(ctx, query, nil)
	case driver.Execer: //nolint:staticcheck // old drivers have only this
		_, err = e.Exec(query, nil)
	default:
		err = driver.ErrSkip
	}
	if !errors.Is(err, driver.ErrSkip) {
		return err
	}
	stmt, err := c.inner.Prepare(query)
	if err != nil {
		return err
	}
	_, err = stmt.Exec(nil) //nolint:staticcheck // every driver has it
	return errors.Join(err, stmt.Close())
}

func (c *trackingConn) Begin() (driver.Tx, error) {
	return c.BeginTx(context.Background(), driver.TxOptions{})
}

func (c *trackingConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	if c.unended {
		return nil, driver.ErrBadConn
	}
	c.prepared.prepareNext(ctx, c)
	tx, err := beginInner(ctx, c.inner, opts)
	if err != nil {
		if c.dead = c.dead || diedUnused(ctx, c.inner, err); c.dead && !errors.Is(err, driver.ErrBadConn) {
			err = fmt.Errorf("%w: %w", driver.ErrBadConn, err)
		}
		return nil, err
	}
	c.lose()
	c.tracker, c.refused, c.readOnly = NewTracker(c.dialect), new(refusedCommits), opts.ReadOnly
	if p, ok := ctx.Value(probeKey{}).(*probe); ok {
		p.seen, p.tracker, p.dialect = true, c.tracker, c.dialect
	}
	return &trackingTx{inner: tx, conn: c, tracker: c.tracker}, nil
}

// diedUnused reports whether no transaction began because the connection is gone. Nothing has
// happened on this connection, so the caller may begin on another one. Some drivers report it to
// their pool only at the next use: pgdriver, and pgx within a second.
func diedUnused(ctx context.Context, conn driver.Conn, err error) bool {
	if errors.Is(err, driver.ErrBadConn) {
		return true
	}
	if ctx.Err() != nil { // drivers close connections for this reason too
		return false
	}
	if v, ok := conn.(driver.Validator); ok {
		return !v.IsValid()
	}
	r, ok := conn.(driver.SessionResetter)
	return ok && errors.Is(r.ResetSession(ctx), driver.ErrBadConn)
}

func beginInner(ctx context.Context, conn driver.Conn, opts driver.TxOptions) (driver.Tx, error) {
	if b, ok := conn.(driver.ConnBeginTx); ok {
		return b.BeginTx(ctx, opts)
	}
	if opts.Isolation != 0 {
		return nil, errors.New("sqltx: the driver does not support isolation levels")
	}
	if opts.ReadOnly {
		return nil, errors.New("sqltx: the driver does not support read-only transactions")
	}
	tx, err := conn.Begin() //nolint:staticcheck // such a driver has no other way
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		_ = tx.Rollback()
		return nil, err
	}
	return tx, nil
}

func (c *trackingConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if len(args) == 0 {
		if ok, err := c.answer(ctx, query); ok {
			return driver.ResultNoRows, err
		}
	}
	guarded, err := c.before(ctx, query)
	if err != nil {
		return nil, err
	}
	res, err := send(ctx, c, query, args, execInner, execStmt)
	c.after(ctx, query, err, guarded)
	c.prepared.shown(query)
	return result(res, err)
}

// send executes a statement by its text, or prepared: because the statement is kept, or because the
// driver wants it so.
func send[T any](ctx context.Context, c *trackingConn, query string, args []driver.NamedValue,
	inner func(context.Context, driver.Conn, string, []driver.NamedValue) (T, error),
	prepared func(context.Context, driver.Stmt, []driver.NamedValue) (T, error),
) (answer T, err error) {
	stmt := c.prepared.of(ctx, c, query, len(args))
	if stmt == nil {
		if answer, err = inner(ctx, c.inner, query, args); errors.Is(err, driver.ErrSkip) {
			stmt = c.prepared.skipped(ctx, c, query)
		}
	}
	if stmt != nil {
		answer, err = prepared(ctx, stmt, args)
		c.prepared.failed(c, err)
	}
	c.prepared.waits(ctx, query)
	return answer, err
}

func execInner(ctx context.Context, conn driver.Conn, query string, args []driver.NamedValue) (driver.Result, error) {
	switch e := conn.(type) {
	case driver.ExecerContext:
		return e.ExecContext(ctx, query, args)
	case driver.Execer: //nolint:staticcheck // old drivers have only this
		values, err := plainValues(ctx, args)
		if err != nil {
			return nil, err
		}
		return e.Exec(query, values)
	default:
		return nil, driver.ErrSkip
	}
}

func (c *trackingConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	guarded, err := c.before(ctx, query)
	if err != nil {
		return nil, err
	}
	rows, err := send(ctx, c, query, args, queryInner, queryStmt)
	return c.wrapRows(ctx, query, rows, err, guarded)
}

func queryInner(ctx context.Context, conn driver.Conn, query string, args []driver.NamedValue) (driver.Rows, error) {
	switch q := conn.(type) {
	case driver.QueryerContext:
		return q.QueryContext(ctx, query, args)
	case driver.Queryer: //nolint:staticcheck // old drivers have only this
		values, err := plainValues(ctx, args)
		if err != nil {
			return nil, err
		}
		return q.Query(query, values)
	default:
		return nil, driver.ErrSkip
	}
}

// wrapRows is after for a statement that may have returned rows.
func (c *trackingConn) wrapRows(ctx context.Context, query string, rows driver.Rows, err error,
	guarded bool,
) (driver.Rows, error) {
	if err != nil || c.tracker == nil {
		c.after(ctx, query, err, guarded)
		return rows, err
	}
	if !guarded { // else the guard is released when the rows are closed
		c.after(ctx, query, nil, false)
	}
	return &trackingRows{inner: rows, conn: c, tracker: c.tracker, guarded: guarded}, nil
}

func (c *trackingConn) Prepare(query string) (driver.Stmt, error) {
	return c.PrepareContext(context.Background(), query)
}

func (c *trackingConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	var stmt driver.Stmt
	err := c.gone()
	if err != nil {
		return nil, err
	}
	if stmt, err = prepareInner(ctx, c.inner, query); err != nil {
		c.after(ctx, "", err, false)
		return nil, err
	}
	return &trackingStmt{inner: stmt, conn: c, query: query}, nil
}

func prepareInner(ctx context.Context, conn driver.Conn, query string) (driver.Stmt, error) {
	if p, ok := conn.(driver.ConnPrepareContext); ok {
		return p.PrepareContext(ctx, query)
	}
	stmt, err := conn.Prepare(query)
	if err == nil && ctx.Err() != nil {
		_ = stmt.Close()
		err = ctx.Err()
	}
	return stmt, err
}

func (c *trackingConn) CheckNamedValue(nv *driver.NamedValue) error {
	if checker, ok := c.inner.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(nv)
	}
	return driver.ErrSkip
}

func (c *trackingConn) Ping(ctx context.Context) error {
	if p, ok := c.inner.(driver.Pinger); ok {
		return p.Ping(ctx)
	}
	return nil
}

// ResetSession is called before the connection is used again. A transaction that is still open here
// was never ended.
func (c *trackingConn) ResetSession(ctx context.Context) error {
	c.lose()
	if r, ok := c.inner.(driver.SessionResetter); ok {
		return r.ResetSession(ctx)
	}
	return nil
}

func (c *trackingConn) IsValid() bool {
	if c.dead || c.unended {
		return false
	}
	if v, ok := c.inner.(driver.Validator); ok {
		return v.IsValid()
	}
	return true
}

// Close closes the connection, and so ends a transaction whose COMMIT was not sent.
func (c *trackingConn) Close() error {
	err := c.inner.Close()
	if t := c.tracker; t != nil {
		c.tracker = nil
		t.RolledBack()
	}
	return err
}

// lose reports an open transaction as Unknown.
func (c *trackingConn) lose() {
	if t := c.tracker; t != nil {
		c.tracker = nil
		t.Unseen()
		_ = t.Commit(func() error { return nil })
	}
}

// aborted returns an error if COMMIT would roll back or has nothing to commit. In that case
// PostgreSQL answers COMMIT by ROLLBACK, which not every driver reports (pgdriver does not), and
// MySQL and MariaDB report success. aborted asks the database only in doubt, and only if the driver
// does not know.
func (c *trackingConn) aborted() error {
	if err := c.gone(); err != nil || c.tracker == nil {
		return err
	}
	state, doubt := c.driverState(), c.tracker.Doubt()
	switch state {
	case stateNone: // a statement that the tracker did not recognise has ended it
		c.tracker.Observe("COMMIT", nil)
	case stateOpen:
		c.tracker.Resolve(true)
	case stateFailed:
		c.tracker.Resolve(false)
	case stateUnknown:
		if doubt != nil {
			c.tracker.Resolve(executor(c.exec).ask(context.Background(), c.dialect))
		}
	}
	return c.gone()
}

// gone returns an error if no statement may be sent in the transaction any more.
func (c *trackingConn) gone() error {
	if c.tracker == nil {
		if c.unended {
			return driver.ErrBadConn
		}
		return nil
	}
	_, err := c.tracker.Before("")
	return err
}

func (c *trackingConn) driverState() txState {
	if !c.asked {
		c.asked, c.state = true, stateOf(c.inner)
	}
	if c.state == nil {
		return stateUnknown
	}
	return c.state()
}

// result replaces a nil driver.Result. Some drivers return nil for a text that is only a comment,
// and database/sql panics on it.
func result(res driver.Result, err error) (driver.Result, error) {
	if res == nil && err == nil {
		return driver.RowsAffected(0), nil
	}
	return res, err
}

// plainValues converts arguments for drivers without the context methods, as database/sql does.
func plainValues(ctx context.Context, args []driver.NamedValue) ([]driver.Value, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	values := make([]driver.Value, len(args))
	for i, a := range args {
		if a.Name != "" {
			return nil, fmt.Errorf("sqltx: the driver does not support the named parameter %q", a.Name)
		}
		values[i] = a.Value
	}
	return values, nil
}
