package sqltx

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"sync/atomic"

	"github.com/ormoutbox/ormoutbox/core"
)

// Connector wraps c so that every transaction of a pool opened with it is tracked. It does not
// matter which library begins the transaction: database/sql, sqlx, sqlc, Bun, GORM or Ent. The
// Connector sees statements, prepared statements, savepoints, errors and rollbacks on the driver's
// connection. TxOf finds it again.
//
// Connector sends no statement of its own while all goes well. It asks the database after an error
// after which the server may have rolled back. On MySQL and MariaDB that is any error except a
// violated constraint, on SQLite every error. On PostgreSQL it asks before COMMIT, if the driver
// does not know. If the transaction is gone, every further statement and COMMIT return an error
// wrapping core.ErrTxAborted. They are not sent, because they would run outside of the transaction.
//
// Connector sets the savepoint outbox_guard around statements whose text does not tell what they
// do: CALL and EXECUTE on MySQL and MariaDB, and statements that it does not know. If a statement
// ended the transaction (COMMIT as text) and a callback waits for its outcome, Commit returns an
// error wrapping core.ErrCommitUnknown.
//
//	pool := sql.OpenDB(sqltx.Connector(connector, core.Postgres))
//
// d may be empty for the common drivers (pgx, lib/pq, pgdriver, go-sql-driver/mysql,
// modernc.org/sqlite, mattn/go-sqlite3, ncruces/go-sqlite3). If c is nil or the dialect is not
// known, connecting fails with an error that says so. Put other wrappers of the driver (tracing,
// logging) inside, so that Connector is outermost. Code that uses the driver's own connection with
// sql.Conn.Raw finds it behind the method Raw() driver.Conn.
//
// A driver may tell more than database/sql asks for. If its connection has the method TxStatus()
// byte, that returns T, E or I as PostgreSQL does, or 0 if it does not know. If its transaction has
// the method CommitOutcome() (core.Outcome, error), that is called in place of Commit.
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
	// unprepared says that a prepared statement was unknown to the server.
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
