package sqltx

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"

	"github.com/ormoutbox/ormoutbox/core"
)

// Connector wraps c so that every transaction of a pool opened with it is tracked, whoever begins
// it: database/sql itself, sqlx, sqlc, Bun, GORM, Ent. It sees statements, prepared statements,
// savepoints, errors and rollbacks on the driver's connection, and is found again by TxOf.
//
// It sends nothing of its own while all goes well. After an error after which the server may have
// rolled back, it asks (MySQL, MariaDB: after anything but a violated constraint; SQLite: after
// every error; PostgreSQL: before COMMIT, when the driver does not know). When the transaction is
// gone, every further statement and COMMIT return an error wrapping core.ErrTxAborted and are not
// sent: they would stand for themselves. Around statements of which nobody can tell what they do
// (CALL and EXECUTE on MySQL and MariaDB, and what it does not know) it sets and releases the
// savepoint outbox_guard. A transaction that a statement ended (COMMIT as text) is an error of
// Commit, wrapping core.ErrCommitUnknown, when somebody waits for its outcome.
//
//	pool := sql.OpenDB(sqltx.Connector(connector, core.Postgres))
//
// d may be empty for the common drivers (pgx, lib/pq, pgdriver, go-sql-driver/mysql,
// modernc.org/sqlite, mattn/go-sqlite3, ncruces/go-sqlite3). If c is nil or d cannot be told,
// connecting fails with an error that says so. Wrap other decorators of the driver (tracing,
// logging) on the inside, so that this one is outermost. Code that reaches for the driver's own
// connection with sql.Conn.Raw finds it behind the method Raw() driver.Conn.
//
// The result is safe for use by several goroutines. A Connector that is wrapped again is returned
// as it is.
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
}

func (c *trackingConnector) Connect(ctx context.Context) (driver.Conn, error) {
	if c.err != nil {
		return nil, c.err
	}
	conn, err := c.inner.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &trackingConn{inner: conn, dialect: c.dialect}, nil
}

func (c *trackingConnector) Driver() driver.Driver {
	if c.inner == nil {
		return unusableDriver{c.err}
	}
	return c.inner.Driver()
}

// Close closes the wrapped connector when it can be closed; sql.DB.Close calls it.
func (c *trackingConnector) Close() error {
	if closer, ok := c.inner.(io.Closer); ok {
		return closer.Close()
	}
	return nil
}

type unusableDriver struct{ err error }

func (d unusableDriver) Open(string) (driver.Conn, error) { return nil, d.err }
