package pgxoutbox_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/pgxoutbox"
)

// nativeDriver is a Pool of native pgx as a driver of database/sql. So the tests of Connector are
// tests of Pool as well. Its statements are those of the pgx.Tx.
type nativeDriver struct{ pool *pgxoutbox.Pool }

var (
	_ driver.Connector          = nativeDriver{}
	_ io.Closer                 = nativeDriver{}
	_ driver.ConnBeginTx        = (*nativeConn)(nil)
	_ driver.ConnPrepareContext = (*nativeConn)(nil)
	_ driver.ExecerContext      = (*nativeConn)(nil)
	_ driver.QueryerContext     = (*nativeConn)(nil)
	_ driver.NamedValueChecker  = (*nativeConn)(nil)
	_ driver.StmtExecContext    = (*nativeStmt)(nil)
	_ driver.StmtQueryContext   = (*nativeStmt)(nil)
)

// newNativeDriver opens a pool with so many connections.
func newNativeDriver(t *testing.T, cfg pgx.ConnConfig, conns int32) nativeDriver {
	t.Helper()
	config, err := pgxpool.ParseConfig(cfg.ConnString())
	fixture.NoError(t, err)
	config.ConnConfig, config.MaxConns = cfg.Copy(), conns
	// A ping before the use of an idle connection counts as a statement of somebody else.
	config.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false }
	pgxoutbox.DeferBegin(config)
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	fixture.NoError(t, err)
	return nativeDriver{pgxoutbox.NewPool(pool)}
}

func (d nativeDriver) Connect(context.Context) (driver.Conn, error) {
	return &nativeConn{pool: d.pool}, nil
}
func (d nativeDriver) Driver() driver.Driver { return nil }

// Close does not wait for the connections that the test has not given back.
func (d nativeDriver) Close() error {
	go d.pool.Close()
	return nil
}

// nativeConn has a transaction, or takes a connection of the pool for each statement.
type nativeConn struct {
	pool *pgxoutbox.Pool
	tx   pgx.Tx // nil: there is none
	ctx  context.Context
}

// nativeTxKey is the key of a *pgx.Tx in a context, into which Exec puts the transaction.
type nativeTxKey struct{}

// coreTx returns the transaction of tx, which may be one of native pgx.
func coreTx(ctx context.Context, tx *sql.Tx, native bool) (core.Tx, error) {
	if !native {
		return sqltx.TxOf(ctx, tx)
	}
	var own pgx.Tx
	if _, err := tx.ExecContext(context.WithValue(ctx, nativeTxKey{}, &own), ""); err != nil {
		return nil, fmt.Errorf("%w: %w", core.ErrTxAborted, err)
	}
	return pgxoutbox.TxOf(ctx, own)
}

func (c *nativeConn) on() interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
} {
	if c.tx != nil {
		return c.tx
	}
	return c.pool
}

// pgx returns the connection of pgx.
func (c *nativeConn) pgx() (*pgx.Conn, error) {
	if c.tx != nil {
		return c.tx.Conn(), nil
	}
	lent, err := c.pool.Acquire(context.Background())
	if err != nil {
		return nil, err
	}
	defer lent.Release() // nobody else uses the pool
	return lent.Conn(), nil
}

func (c *nativeConn) Begin() (driver.Tx, error) {
	return c.BeginTx(context.Background(), driver.TxOptions{})
}

func (c *nativeConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	var o pgx.TxOptions
	if opts.ReadOnly {
		o.AccessMode = pgx.ReadOnly
	}
	tx, err := c.pool.BeginTx(ctx, o)
	c.tx, c.ctx = tx, ctx
	return c, err
}

func (c *nativeConn) Commit() error {
	defer func() { c.tx = nil }()
	return c.tx.Commit(c.ctx)
}

func (c *nativeConn) Rollback() error {
	defer func() { c.tx = nil }()
	return c.tx.Rollback(c.ctx)
}

func (c *nativeConn) Close() error                             { return nil }
func (c *nativeConn) CheckNamedValue(*driver.NamedValue) error { return nil }

func (c *nativeConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if to, ok := ctx.Value(nativeTxKey{}).(*pgx.Tx); ok {
		*to = c.tx
		return driver.ResultNoRows, nil
	}
	tag, err := c.on().Exec(ctx, query, values(args)...)
	return driver.RowsAffected(tag.RowsAffected()), err
}

func (c *nativeConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	rows, err := c.on().Query(ctx, query, values(args)...)
	if err != nil {
		return nil, err
	}
	r := &nativeRows{Rows: rows}
	r.more = rows.Next() // so that an error of the statement is one of Query, as with stdlib
	return r, rows.Err()
}

func values(args []driver.NamedValue) (all []any) {
	for _, a := range args {
		all = append(all, a.Value)
	}
	return all
}

func (c *nativeConn) Prepare(query string) (driver.Stmt, error) {
	return c.PrepareContext(context.Background(), query)
}

var nativeStmts atomic.Int64

// PrepareContext prepares a statement, which is then executed as pgx executes names. The name of a
// statement that may be more than a look is its text.
func (c *nativeConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	name := query
	if strings.HasPrefix(query, "SELECT") {
		name = fmt.Sprint("stmt_", nativeStmts.Add(1))
	}
	if c.tx != nil {
		_, err := c.tx.Prepare(ctx, name, query)
		return &nativeStmt{c, name}, err
	}
	conn, err := c.pgx()
	if err == nil {
		_, err = conn.Prepare(ctx, name, query)
	}
	return &nativeStmt{c, name}, err
}

type nativeStmt struct {
	conn *nativeConn
	name string
}

// Close forgets the name, as a driver does. After a DEALLOCATE ALL of another transaction, pgx would
// execute a name that the server no longer has.
func (s *nativeStmt) Close() error {
	conn, err := s.conn.pgx()
	if err != nil {
		return err
	}
	return conn.Deallocate(context.Background(), s.name)
}

func (s *nativeStmt) NumInput() int                              { return -1 }
func (s *nativeStmt) Exec([]driver.Value) (driver.Result, error) { return nil, driver.ErrSkip }
func (s *nativeStmt) Query([]driver.Value) (driver.Rows, error)  { return nil, driver.ErrSkip }

func (s *nativeStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	return s.conn.ExecContext(ctx, s.name, args)
}

func (s *nativeStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return s.conn.QueryContext(ctx, s.name, args)
}

// nativeRows are rows of pgx, the first of which was read already.
type nativeRows struct {
	pgx.Rows
	more bool
}

func (r *nativeRows) Columns() (names []string) {
	for _, f := range r.FieldDescriptions() {
		names = append(names, f.Name)
	}
	return names
}

func (r *nativeRows) Close() error {
	r.Rows.Close()
	return r.Err()
}

func (r *nativeRows) Next(to []driver.Value) error {
	if !r.more {
		if err := r.Err(); err != nil {
			return err
		}
		return io.EOF
	}
	all, err := r.Values()
	for i := range all {
		to[i] = all[i]
	}
	r.more = r.Rows.Next()
	return err
}
