package outboxtest

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"io"
	"strings"
	"sync"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

// OpenDB returns a pool on a database that accepts every statement and stores nothing. It is for
// tests of code on database/sql or an ORM that check only events. Its transactions are tracked, and
// a Repository accepts them like its own.
//
// A statement affects as many rows as it has VALUES, and otherwise one row. With WHERE 1 = 0 it
// affects none. Rows are numbered from 1, and LastInsertId gives the number. RETURNING of an INSERT
// gives the inserted values, and the number as the column "id", or as the first column that was not
// inserted. Every other query returns no rows: an UPDATE or DELETE with RETURNING finds none.
func OpenDB(d core.Dialect) (*sql.DB, error) { return sqltx.OpenDB(&nothing{}, d) }

// nothing is a driver whose connections store nothing.
type nothing struct {
	mu   sync.Mutex
	last int64
}

func (n *nothing) Open(string) (driver.Conn, error)             { return nothingConn{n}, nil }
func (n *nothing) Connect(context.Context) (driver.Conn, error) { return nothingConn{n}, nil }
func (n *nothing) Driver() driver.Driver                        { return n }

// number numbers the rows of a statement.
func (n *nothing) number(rows int64) (first int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.last += rows
	return n.last - rows + 1
}

type nothingConn struct{ of *nothing }

func (c nothingConn) Prepare(query string) (driver.Stmt, error) { return nothingStmt{c.of, query}, nil }
func (c nothingConn) Close() error                              { return nil }
func (c nothingConn) Begin() (driver.Tx, error)                 { return c, nil }
func (c nothingConn) Commit() error                             { return nil }
func (c nothingConn) Rollback() error                           { return nil }
func (c nothingConn) BeginTx(context.Context, driver.TxOptions) (driver.Tx, error) {
	return c, nil
}

type nothingStmt struct {
	of    *nothing
	query string
}

func (s nothingStmt) Close() error  { return nil }
func (s nothingStmt) NumInput() int { return -1 }

// rows returns how many rows VALUES has.
func (s nothingStmt) rows() int64 {
	_, values, _ := strings.Cut(s.query, "VALUES")
	return 1 + int64(strings.Count(strings.ReplaceAll(values, " ", ""), "),("))
}

func (s nothingStmt) Exec([]driver.Value) (driver.Result, error) {
	if strings.Contains(s.query, "1 = 0") {
		return driver.RowsAffected(0), nil
	}
	if !strings.HasPrefix(s.query, "INSERT") {
		return driver.RowsAffected(s.rows()), nil
	}
	return inserted{s.of.number(s.rows()), s.rows()}, nil
}

func (s nothingStmt) Query(args []driver.Value) (driver.Rows, error) {
	return returned(s.query, args, s.of.number), nil
}

type inserted struct{ first, rows int64 }

func (r inserted) LastInsertId() (int64, error) { return r.first, nil }
func (r inserted) RowsAffected() (int64, error) { return r.rows, nil }

// answer has the rows of RETURNING.
type answer struct {
	columns []string
	rows    [][]driver.Value
}

func (a *answer) Columns() []string { return a.columns }
func (a *answer) Close() error      { return nil }

func (a *answer) Next(dest []driver.Value) error {
	if len(a.rows) == 0 {
		return io.EOF
	}
	copy(dest, a.rows[0])
	a.rows = a.rows[1:]
	return nil
}
