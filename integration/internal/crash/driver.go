package crash

import (
	"bytes"
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"modernc.org/sqlite"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

// Open opens a plain pool.
func Open(d core.Dialect, dsn string) (*sql.DB, error) {
	c, err := connector(d, dsn, nil)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(c)
	db.SetMaxOpenConns(8)
	return db, nil
}

// sqliteInC is nil in programs that were built without cgo.
var sqliteInC driver.Driver

// openTrapped opens a tracked pool whose commits pass the points of the trap.
func openTrapped(d core.Dialect, dsn string, t *trap) (*sql.DB, error) {
	c, err := connector(d, dsn, t)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(sqltx.Connector(&trappedConnector{Connector: c, trap: t, wire: d != core.SQLite}, d))
	db.SetMaxOpenConns(8)
	return db, nil
}

func connector(d core.Dialect, dsn string, t *trap) (driver.Connector, error) {
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		var dialer net.Dialer
		c, err := dialer.DialContext(ctx, network, addr)
		if err != nil || t == nil {
			return c, err
		}
		return &trappedNet{Conn: c, trap: t}, nil
	}
	switch d {
	case core.Postgres:
		cfg, err := pgx.ParseConfig(dsn)
		if err != nil {
			return nil, err
		}
		cfg.DialFunc = dial
		return stdlib.GetConnector(*cfg), nil
	case core.MySQL:
		cfg, err := mysql.ParseDSN(dsn)
		if err != nil {
			return nil, err
		}
		cfg.DialFunc = dial
		return mysql.NewConnector(cfg)
	case core.SQLite:
		return sqliteConnector(dsn), nil
	}
	return nil, fmt.Errorf("no driver for %q", d)
}

// sqliteConnector opens files with SQLite in C if the program was built with cgo, as for the race
// detector. If it was not, or PureGo made the DSN, it opens them with SQLite in Go. The file keeps
// the writes of a killed process, but no write waits for the disk.
type sqliteConnector string

const pureGo = "modernc:"

// PureGo returns a DSN of SQLite for which Open and children take the driver that is written in Go.
func PureGo(dsn string) string { return pureGo + dsn }

func (c sqliteConnector) Connect(context.Context) (driver.Conn, error) {
	dsn, inGo := strings.CutPrefix(string(c), pureGo)
	if inGo || sqliteInC == nil {
		return c.Driver().Open(dsn + "&_pragma=synchronous(OFF)")
	}
	file, _, _ := strings.Cut(dsn, "?")
	return c.Driver().Open(file + "?_busy_timeout=10000&_journal_mode=WAL&_synchronous=OFF&_txlock=immediate")
}

func (c sqliteConnector) Driver() driver.Driver {
	if sqliteInC == nil || strings.HasPrefix(string(c), pureGo) {
		return &sqlite.Driver{}
	}
	return sqliteInC
}

// trappedNet ends the process while a COMMIT is on its way to the server: before its last byte has
// left, or after.
type trappedNet struct {
	net.Conn
	trap   *trap
	flight bool // what is written now has a COMMIT in it
}

// commits are the forms of COMMIT: a simple query of PostgreSQL, and COM_QUERY of MariaDB.
var commits = [][]byte{[]byte("Q\x00\x00\x00\x0bCOMMIT\x00"), []byte("\x07\x00\x00\x00\x03COMMIT")}

func (c *trappedNet) Write(b []byte) (int, error) {
	up, forms := bytes.ToUpper(b), commits
	if c.flight {
		forms = [][]byte{up}
	}
	for _, commit := range forms {
		at := bytes.Index(up, commit)
		if at < 0 || !c.trap.due(InsideCommit) {
			continue
		}
		r := c.trap.random()
		if r.IntN(3) == 0 { // send a part of the COMMIT
			_, _ = c.Conn.Write(b[:at+1+r.IntN(len(commit)-1)])
			die()
		}
		_, _ = c.Conn.Write(b)
		spin(time.Duration(r.IntN(1000)) * time.Microsecond) // the server may have answered, but the answer is not read
		die()
	}
	return c.Conn.Write(b)
}

// trappedConnector passes points around commits.
type trappedConnector struct {
	driver.Connector
	trap *trap
	wire bool // InsideCommit is passed on the wire
}

func (c *trappedConnector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	full, ok := conn.(fullConn)
	if !ok {
		return nil, fmt.Errorf("the driver's %T lacks methods that the test passes on", conn)
	}
	return &trappedConn{fullConn: full, c: c}, nil
}

// fullConn has the methods that all three drivers have.
type fullConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.Pinger
}

type trappedConn struct {
	fullConn
	c *trappedConnector
}

// CheckNamedValue calls the driver's method, which only some drivers have.
func (c *trappedConn) CheckNamedValue(v *driver.NamedValue) error {
	if n, ok := c.fullConn.(driver.NamedValueChecker); ok {
		return n.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

// ResetSession calls the driver's method, which only some drivers have.
func (c *trappedConn) ResetSession(ctx context.Context) error {
	if r, ok := c.fullConn.(driver.SessionResetter); ok {
		return r.ResetSession(ctx)
	}
	return nil
}

// IsValid calls the driver's method, which only some drivers have.
func (c *trappedConn) IsValid() bool {
	v, ok := c.fullConn.(driver.Validator)
	return !ok || v.IsValid()
}

func (c *trappedConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	tx, err := c.fullConn.BeginTx(ctx, opts)
	if err != nil {
		return nil, err
	}
	return &trappedTx{Tx: tx, c: c.c}, nil
}

type trappedTx struct {
	driver.Tx
	c *trappedConnector
}

func (t *trappedTx) Commit() error {
	trap := t.c.trap
	trap.at(BeforeCommit)
	if !t.c.wire && trap.due(InsideCommit) {
		r := trap.random()
		go func() {
			spin(time.Duration(r.IntN(300)) * time.Microsecond)
			die()
		}()
		_ = t.Tx.Commit()
		select {} // the caller must not get the answer
	}
	err := t.Tx.Commit()
	if err == nil {
		trap.at(BeforeEnqueue)
	}
	return err
}
