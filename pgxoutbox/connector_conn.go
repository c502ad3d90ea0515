package pgxoutbox

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"io"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/ormoutbox/ormoutbox/core"
)

// conn is the connection of pgx for database/sql, without the transactions of pgx: session has
// them.
type conn struct {
	std     *stdlib.Conn
	session *session
}

var (
	_ driver.Conn               = (*conn)(nil)
	_ driver.ConnBeginTx        = (*conn)(nil)
	_ driver.ConnPrepareContext = (*conn)(nil)
	_ driver.ExecerContext      = (*conn)(nil)
	_ driver.QueryerContext     = (*conn)(nil)
	_ driver.NamedValueChecker  = (*conn)(nil)
	_ driver.Pinger             = (*conn)(nil)
	_ driver.SessionResetter    = (*conn)(nil)
	_ driver.Validator          = (*conn)(nil)
)

// TxStatus returns the state of the transaction to sqltx.
func (c *conn) TxStatus() byte { return c.session.status() }

// Conn returns the connection of pgx. It is for code that looks for the method of stdlib.Conn; the
// function Conn also returns an error.
func (c *conn) Conn() *pgx.Conn {
	pg, _ := c.session.lend(context.Background())
	return pg
}

// Raw returns the connection of stdlib, for code that unwraps connections.
func (c *conn) Raw() driver.Conn {
	_ = c.Conn()
	return c.std
}

func (c *conn) Begin() (driver.Tx, error) {
	return c.BeginTx(context.Background(), driver.TxOptions{})
}

func (c *conn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	if c.session.closed() {
		return nil, driver.ErrBadConn
	}
	o, err := txOptions(opts)
	if err != nil {
		return nil, err
	}
	if err := c.session.begin(ctx, o); err != nil {
		return nil, err
	}
	return &tx{session: c.session, ctx: ctx}, nil
}

// txOptions converts options as stdlib does.
func txOptions(opts driver.TxOptions) (o pgx.TxOptions, err error) {
	switch level := sql.IsolationLevel(opts.Isolation); level {
	case sql.LevelDefault:
	case sql.LevelReadUncommitted:
		o.IsoLevel = pgx.ReadUncommitted
	case sql.LevelReadCommitted:
		o.IsoLevel = pgx.ReadCommitted
	case sql.LevelRepeatableRead, sql.LevelSnapshot:
		o.IsoLevel = pgx.RepeatableRead
	case sql.LevelSerializable:
		o.IsoLevel = pgx.Serializable
	default:
		return o, fmt.Errorf("pgxoutbox: unsupported isolation: %v", level)
	}
	if opts.ReadOnly {
		o.AccessMode = pgx.ReadOnly
	}
	return o, nil
}

func (c *conn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if taken, err := c.before(ctx, query, args, false); taken || err != nil {
		return driver.RowsAffected(0), err
	}
	return c.std.ExecContext(ctx, query, args)
}

func (c *conn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if taken, err := c.before(ctx, query, args, false); taken || err != nil {
		return noRows{}, err
	}
	return c.std.QueryContext(ctx, query, args)
}

// before is called before each statement. taken means that the statement is sent later.
func (c *conn) before(
	ctx context.Context, query string, named []driver.NamedValue, prepared bool,
) (taken bool, err error) {
	s := c.session
	if !s.inTx() && s.statements.none() {
		return false, nil
	}
	args := make([]any, len(named))
	for i := range named {
		args[i] = named[i].Value
	}
	return s.before(ctx, query, args, prepared)
}

// Flush writes the events that wait: see sqltx.Flush.
func (c *conn) Flush(ctx context.Context) error { return c.session.flush(ctx, "Flush") }

func (c *conn) Prepare(query string) (driver.Stmt, error) {
	return c.PrepareContext(context.Background(), query)
}

func (c *conn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	if err := c.session.beforePrepare(ctx); err != nil {
		return nil, err
	}
	s, err := c.std.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	std, ok := s.(*stdlib.Stmt)
	if !ok {
		_ = s.Close()
		return nil, fmt.Errorf("pgxoutbox: pgx made a statement of type %T", s)
	}
	return &stmt{Stmt: std, conn: c, query: query}, nil
}

func (c *conn) CheckNamedValue(v *driver.NamedValue) error { return c.std.CheckNamedValue(v) }

func (c *conn) Ping(ctx context.Context) error { return c.std.Ping(ctx) }

// ResetSession is called before the connection is used again.
func (c *conn) ResetSession(ctx context.Context) error {
	if c.session.inTx() {
		c.session.drop()
		return driver.ErrBadConn
	}
	if len(c.session.cfg.Options) == 0 {
		return c.std.ResetSession(ctx)
	}
	sent := c.session.front.sent()
	err := c.std.ResetSession(ctx)
	if c.session.front.sent() != sent { // perhaps DISCARD ALL
		c.session.statements.doubt()
	}
	return err
}

func (c *conn) IsValid() bool { return !c.session.closed() }

func (c *conn) Close() error {
	c.session.drop()
	return c.std.Close()
}

// stmt is a prepared statement. It is judged by its text each time that it is executed.
type stmt struct {
	*stdlib.Stmt
	conn  *conn
	query string
}

func (s *stmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	if taken, err := s.conn.before(ctx, s.query, args, true); taken || err != nil {
		return driver.RowsAffected(0), err
	}
	return s.Stmt.ExecContext(ctx, args)
}

func (s *stmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	if taken, err := s.conn.before(ctx, s.query, args, true); taken || err != nil {
		return noRows{}, err
	}
	return s.Stmt.QueryContext(ctx, args)
}

// tx is a transaction. database/sql gives no context to Commit; pgx, too, uses the context of
// BeginTx.
type tx struct {
	session *session
	ctx     context.Context //nolint:containedctx // database/sql ends the transaction with it
}

// CommitOutcome returns the outcome to sqltx, more exactly than an error could.
func (t *tx) CommitOutcome() (core.Outcome, error) { return t.session.commit(t.ctx) }

func (t *tx) Commit() error {
	_, err := t.CommitOutcome()
	return err
}

func (t *tx) Rollback() error { return t.session.rollback(t.ctx) }

// noRows are the rows of a statement that is sent later.
type noRows struct{}

func (noRows) Columns() []string         { return nil }
func (noRows) Close() error              { return nil }
func (noRows) Next([]driver.Value) error { return io.EOF }
