package sqltx

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"sync/atomic"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

// Open is sql.Open with Connector: every transaction of the pool is tracked. It does not connect.
// If d is empty, it comes from the driver, as for Connector. An unknown driver is an error here.
func Open(driverName, dsn string, d core.Dialect) (*sql.DB, error) {
	plain, err := sql.Open(driverName, dsn)
	if err != nil {
		return nil, fmt.Errorf("sqltx: open the pool: %w", err)
	}
	drv := plain.Driver()
	if err := plain.Close(); err != nil { // it has never connected
		return nil, fmt.Errorf("sqltx: open the pool: %w", err)
	}
	var c driver.Connector = dsnConnector{drv, dsn}
	if dc, ok := drv.(driver.DriverContext); ok {
		if c, err = dc.OpenConnector(dsn); err != nil {
			return nil, fmt.Errorf("sqltx: open the pool: %w", err)
		}
	}
	return OpenDB(c, d)
}

// OpenDB is sql.OpenDB with Connector: Open for a driver that is configured by code. It returns the
// errors that Connector reports only when the pool connects.
func OpenDB(c driver.Connector, d core.Dialect) (*sql.DB, error) {
	tracking := Connector(c, d)
	if t, ok := tracking.(*trackingConnector); ok && t.err != nil {
		return nil, t.err
	}
	return sql.OpenDB(tracking), nil
}

// dsnConnector is the connector of a driver that has none, as in sql.Open.
type dsnConnector struct {
	driver driver.Driver
	dsn    string
}

func (c dsnConnector) Connect(context.Context) (driver.Conn, error) { return c.driver.Open(c.dsn) }
func (c dsnConnector) Driver() driver.Driver                        { return c.driver }

func checkDialect(d core.Dialect) error {
	switch d {
	case core.Postgres, core.MySQL, core.SQLite:
		return nil
	}
	return fmt.Errorf("sqltx: dialect %q is not supported: use core.Postgres, core.MySQL or core.SQLite", string(d))
}

// DialectOf returns the dialect of a pool by its driver, without a query. It returns an error for
// an unknown driver; see Connector for the known ones.
func DialectOf(db *sql.DB) (core.Dialect, error) {
	if db == nil {
		return "", errors.New("sqltx: DialectOf was given a nil *sql.DB")
	}
	return dialectOf(db.Driver())
}

// dialectOf finds the dialect by the import path of a driver's types, so that no driver needs to be
// imported.
func dialectOf(v any) (core.Dialect, error) {
	t := reflect.TypeOf(v)
	if t == nil {
		return "", errors.New("sqltx: the driver is nil: name the dialect")
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	path := t.PkgPath()
	for _, known := range []struct {
		part    string
		dialect core.Dialect
	}{
		{"jackc/pgx/", core.Postgres},
		{"lib/pq", core.Postgres},
		{"driver/pgdriver", core.Postgres},
		{"go-sql-driver/mysql", core.MySQL},
		{"modernc.org/sqlite", core.SQLite},
		{"go-sqlite3", core.SQLite},
		{"glebarez/go-sqlite", core.SQLite},
	} {
		if strings.Contains(path, known.part) {
			return known.dialect, nil
		}
	}
	return "", fmt.Errorf("sqltx: cannot tell the dialect of the driver %s: name it (core.Postgres, core.MySQL or "+
		"core.SQLite)", t)
}

// Connector wraps c so that every transaction of a pool opened with it is tracked. It does not
// matter which library begins the transaction: database/sql, sqlx, sqlc, Bun, GORM or Ent. The
// Connector sees statements, prepared statements, savepoints, errors and rollbacks on the driver's
// connection. TxOf finds it again.
//
// Connector sends no statement of its own while all goes well. It asks the database after an error
// after which the server may have rolled back. On MySQL and MariaDB that is any error except a
// violated constraint, on SQLite every error. On PostgreSQL it asks before COMMIT, if the driver
// does not report the state. If the transaction is gone, every further statement and COMMIT return
// an error wrapping core.ErrTxAborted. They are not sent, because they would run outside of the
// transaction.
//
// Connector sets the savepoint outbox_guard around statements whose effect on the transaction is
// not clear from their text: CALL and EXECUTE on MySQL and MariaDB, and unknown statements. If a
// statement ended the transaction (COMMIT as text) and a callback waits for its outcome, Commit
// returns an error wrapping core.ErrCommitUnknown.
//
//	pool := sql.OpenDB(sqltx.Connector(connector, core.Postgres))
//
// d may be empty for the common drivers (pgx, lib/pq, pgdriver, go-sql-driver/mysql,
// modernc.org/sqlite, mattn/go-sqlite3, ncruces/go-sqlite3). If c is nil or the dialect is not
// known, connecting fails with an error. Put other wrappers of the driver (tracing,
// logging) inside, so that Connector is outermost. Code that uses the driver's own connection with
// sql.Conn.Raw finds it with DriverConn.
//
// A driver may report more than database/sql asks for. If its connection has the method TxStatus()
// byte, that returns T, E or I as PostgreSQL does, or 0 if the state is not known. If its
// transaction has the method CommitOutcome() (core.Outcome, error), that is called in place of
// Commit.
//
// The result is safe for use by several goroutines. Connector returns its own result unchanged when
// it is called on it again.
func Connector(c driver.Connector, d core.Dialect) driver.Connector {
	if own, ok := c.(*trackingConnector); ok && (d == "" || d == own.dialect) {
		return own
	}
	t := &trackingConnector{inner: c, dialect: d}
	switch {
	case isNil(c):
		t.inner = nil
		t.err = errors.New("sqltx: Connector was given a nil driver.Connector")
	case d == "":
		t.dialect, t.err = dialectOf(c.Driver())
	default:
		t.err = checkDialect(d)
	}
	return t
}

type trackingConnector struct {
	inner   driver.Connector
	dialect core.Dialect
	err     error
	// unprepared: a prepared statement was unknown to the server.
	unprepared atomic.Bool
}

func (c *trackingConnector) Connect(ctx context.Context) (driver.Conn, error) {
	if c.err != nil {
		return nil, c.err
	}
	conn, err := c.inner.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &trackingConn{inner: conn, dialect: c.dialect, prepared: prepared{off: &c.unprepared}}, nil
}

func (c *trackingConnector) Driver() driver.Driver {
	if c.inner == nil {
		return unusableDriver{c.err}
	}
	return c.inner.Driver()
}

// Close closes the wrapped connector if it can be closed. sql.DB.Close calls it.
func (c *trackingConnector) Close() error {
	if closer, ok := c.inner.(io.Closer); ok {
		return closer.Close()
	}
	return nil
}

type unusableDriver struct{ err error }

func (d unusableDriver) Open(string) (driver.Conn, error) { return nil, d.err }

// Conn runs statements. *sql.Tx, *sql.Conn and *sql.DB have its methods. TxOf finds out whether a
// Conn is a transaction.
type Conn interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// WrapTx makes a core.Tx of a transaction, for authors of adapters. t follows the transaction: the
// owner of conn must show t the statements, because the result does not. With a nil t the
// transaction is not tracked.
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

// OnRollback is as Tracker.OnRollback.
func (t *wrappedTx) OnRollback(key any, fn func(to core.RecorderMark)) {
	if t.tracker != nil {
		t.tracker.OnRollback(key, fn)
	}
}

// RefuseCommit is as Tx.RefuseCommit. Without a connection of Connector it does nothing.
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
