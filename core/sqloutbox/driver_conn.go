package sqloutbox

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlerr"
)

// trackingConn implements every optional interface of a driver.Conn and falls back to what database/sql does without it.
// database/sql never uses a driver.Conn from two goroutines at once, so the tracker needs no lock.
type trackingConn struct {
	inner   driver.Conn
	dialect core.Dialect
	tracker *core.Tracker // of the open transaction, else nil
	failed  error         // of the latest statement in it
	vetoes  []*veto       // of it
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

func (c *trackingConn) observe(query string, err error) {
	if c.tracker == nil || errors.Is(err, driver.ErrSkip) {
		return
	}
	c.tracker.Observe(query, err)
	c.failed = err
}

func (c *trackingConn) Begin() (driver.Tx, error) {
	return c.BeginTx(context.Background(), driver.TxOptions{})
}

func (c *trackingConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	tx, err := beginInner(ctx, c.inner, opts)
	if err != nil {
		return nil, err
	}
	c.lose()
	c.tracker, c.failed, c.vetoes = core.NewTracker(c.dialect), nil, nil
	if p, ok := ctx.Value(probeKey{}).(*probe); ok {
		p.seen, p.tracker, p.dialect = true, c.tracker, c.dialect
	}
	return &trackingTx{inner: tx, conn: c, tracker: c.tracker}, nil
}

func beginInner(ctx context.Context, conn driver.Conn, opts driver.TxOptions) (driver.Tx, error) {
	if b, ok := conn.(driver.ConnBeginTx); ok {
		return b.BeginTx(ctx, opts)
	}
	if opts.Isolation != 0 {
		return nil, errors.New("outbox: the driver does not support isolation levels")
	}
	if opts.ReadOnly {
		return nil, errors.New("outbox: the driver does not support read-only transactions")
	}
	tx, err := conn.Begin() //nolint:staticcheck // the only way with such a driver
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
	if len(args) == 0 && c.answer(ctx, query) {
		return driver.ResultNoRows, nil
	}
	var (
		res driver.Result
		err error
	)
	switch e := c.inner.(type) {
	case driver.ExecerContext:
		res, err = e.ExecContext(ctx, query, args)
	case driver.Execer: //nolint:staticcheck // old drivers have only this
		var values []driver.Value
		if values, err = plainValues(ctx, args); err == nil {
			res, err = e.Exec(query, values)
		}
	default:
		return nil, driver.ErrSkip
	}
	c.observe(query, err)
	return res, err
}

func (c *trackingConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	var (
		rows driver.Rows
		err  error
	)
	switch q := c.inner.(type) {
	case driver.QueryerContext:
		rows, err = q.QueryContext(ctx, query, args)
	case driver.Queryer: //nolint:staticcheck // old drivers have only this
		var values []driver.Value
		if values, err = plainValues(ctx, args); err == nil {
			rows, err = q.Query(query, values)
		}
	default:
		return nil, driver.ErrSkip
	}
	c.observe(query, err)
	return c.wrapRows(rows, err)
}

func (c *trackingConn) wrapRows(rows driver.Rows, err error) (driver.Rows, error) {
	if err != nil || c.tracker == nil {
		return rows, err
	}
	return &trackingRows{inner: rows, conn: c, tracker: c.tracker}, nil
}

func (c *trackingConn) Prepare(query string) (driver.Stmt, error) {
	return c.PrepareContext(context.Background(), query)
}

func (c *trackingConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	var (
		stmt driver.Stmt
		err  error
	)
	if p, ok := c.inner.(driver.ConnPrepareContext); ok {
		stmt, err = p.PrepareContext(ctx, query)
	} else if stmt, err = c.inner.Prepare(query); err == nil && ctx.Err() != nil {
		_ = stmt.Close()
		err = ctx.Err()
	}
	if err != nil {
		c.observe("", err)
		return nil, err
	}
	return &trackingStmt{inner: stmt, conn: c, query: query}, nil
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

// ResetSession is called before the connection is used again. A transaction that is open here was ended by nobody.
func (c *trackingConn) ResetSession(ctx context.Context) error {
	c.lose()
	if r, ok := c.inner.(driver.SessionResetter); ok {
		return r.ResetSession(ctx)
	}
	return nil
}

func (c *trackingConn) IsValid() bool {
	if v, ok := c.inner.(driver.Validator); ok {
		return v.IsValid()
	}
	return true
}

// Close ends the connection, and with it a transaction for which COMMIT was not sent.
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
		t.Taint()
		_ = t.Commit(func() error { return nil })
	}
}

type trackingTx struct {
	inner   driver.Tx
	conn    *trackingConn
	tracker *core.Tracker
}

func (t *trackingTx) Commit() error {
	defer t.leave()
	if err := t.conn.vetoed(); err != nil {
		return t.refuse(err)
	}
	if aborted := t.conn.aborted(); aborted != nil {
		err := t.inner.Commit()
		if err == nil || errors.Is(err, driver.ErrBadConn) {
			err = aborted
		}
		t.tracker.RolledBack()
		return err
	}
	return t.tracker.Commit(t.inner.Commit)
}

// aborted returns an error when PostgreSQL will answer COMMIT by ROLLBACK, which not every driver reports (pgdriver does not).
func (c *trackingConn) aborted() error {
	e, ok := c.inner.(driver.ExecerContext)
	if !ok || c.failed == nil || c.dialect != core.Postgres {
		return nil // after a statement that succeeded it is not aborted
	}
	if _, err := e.ExecContext(context.Background(), "SELECT 1", nil); sqlerr.State(err) == "25P02" {
		return fmt.Errorf("%w: %w", core.ErrTxAborted, err)
	}
	return nil
}

func (t *trackingTx) Rollback() error {
	defer t.leave()
	err := t.inner.Rollback()
	t.tracker.RolledBack()
	return err
}

func (t *trackingTx) leave() {
	if t.conn.tracker == t.tracker {
		t.conn.tracker, t.conn.vetoes = nil, nil
	}
}

// plainValues does for drivers without the context methods what database/sql does for them.
func plainValues(ctx context.Context, args []driver.NamedValue) ([]driver.Value, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	values := make([]driver.Value, len(args))
	for i, a := range args {
		if a.Name != "" {
			return nil, fmt.Errorf("outbox: the driver does not support the named parameter %q", a.Name)
		}
		values[i] = a.Value
	}
	return values, nil
}
