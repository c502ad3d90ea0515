// Package commitfault loses the answers of COMMIT between a driver and database/sql, on every
// database and for every ORM.
package commitfault

import (
	"context"
	"database/sql/driver"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
)

// These statements arm the transaction in which they are run. They go to the database too, which
// sees SELECT 1 and a comment.
const (
	Committed    = "SELECT 1 /* commitfault: committed */"     // COMMIT is carried out
	NotCommitted = "SELECT 1 /* commitfault: not committed */" // COMMIT never arrives
)

// Injector wraps connectors. The zero value is ready.
type Injector struct{ armed atomic.Int64 }

// Armed returns how often a transaction was armed. It stays 0 if an ORM does not use the connector.
func (i *Injector) Armed() int64 { return i.armed.Load() }

// Connector wraps c.
func (i *Injector) Connector(c driver.Connector) driver.Connector { return &connector{c, i} }

type connector struct {
	driver.Connector
	injector *Injector
}

func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	inner, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	full, ok := inner.(fullConn)
	if !ok {
		return nil, fmt.Errorf("the driver's %T lacks methods that the test passes on", inner)
	}
	return &conn{fullConn: full, injector: c.injector}, nil
}

// fullConn has the methods that the drivers of the tests have.
type fullConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.Pinger
}

type conn struct {
	fullConn
	injector *Injector
	fault    string // fault of the open transaction
	broken   bool
}

func (c *conn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if strings.Contains(query, "commitfault: ") {
		c.fault = query
		c.injector.armed.Add(1)
	}
	return c.fullConn.ExecContext(ctx, query, args)
}

func (c *conn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	tx, err := c.fullConn.BeginTx(ctx, opts)
	if err != nil {
		return nil, err
	}
	c.fault = ""
	return &faultyTx{tx, c}, nil
}

// CheckNamedValue calls the driver's method, which only some drivers have.
func (c *conn) CheckNamedValue(v *driver.NamedValue) error {
	if n, ok := c.fullConn.(driver.NamedValueChecker); ok {
		return n.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

// ResetSession calls the driver's method, which only some drivers have. It refuses a connection
// that the injector has reported as lost.
func (c *conn) ResetSession(ctx context.Context) error {
	if c.broken {
		return driver.ErrBadConn
	}
	if r, ok := c.fullConn.(driver.SessionResetter); ok {
		return r.ResetSession(ctx)
	}
	return nil
}

// IsValid is false once the injector has reported the connection as lost.
func (c *conn) IsValid() bool {
	v, ok := c.fullConn.(driver.Validator)
	return !c.broken && (!ok || v.IsValid())
}

type faultyTx struct {
	driver.Tx
	conn *conn
}

func (t *faultyTx) Commit() error {
	end := t.Rollback
	switch t.conn.fault {
	case "":
		return t.Tx.Commit()
	case Committed:
		end = t.Tx.Commit
	}
	t.conn.broken = true
	if err := end(); err != nil {
		return err
	}
	return fmt.Errorf("commitfault: read the answer of COMMIT: %w", io.ErrUnexpectedEOF)
}
