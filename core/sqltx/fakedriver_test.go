package sqltx_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
)

// fakeDriver is a database that only remembers what it was asked.
type fakeDriver struct {
	mu        sync.Mutex
	log       []string
	fail      map[string]error // by statement; "COMMIT" and "ROLLBACK" too
	rowsFail  error            // comes with the first row
	skip      bool             // ErrSkip for statements with arguments, as go-sql-driver/mysql does
	plain     bool             // connections have no optional interface at all
	checked   int              // calls of the connection's CheckNamedValue
	converted int              // calls of the statement's ColumnConverter
	reset     int
	valid     bool
	closed    bool
	rollbacks int           // calls of Rollback
	silent    chan struct{} // if it is there, ROLLBACK gets no answer before it is closed
}

func newFake() *fakeDriver { return &fakeDriver{fail: map[string]error{}, valid: true} }

func (d *fakeDriver) Open(string) (driver.Conn, error) { return d.Connect(context.Background()) }
func (d *fakeDriver) Driver() driver.Driver            { return d }

// Close makes the connector an io.Closer.
func (d *fakeDriver) Close() error { d.closed = true; return nil }

func (d *fakeDriver) Connect(context.Context) (driver.Conn, error) {
	base := &fakeConn{d: d}
	if d.plain {
		return base, nil
	}
	return &fakeFullConn{base}, nil
}

func (d *fakeDriver) run(query string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.log = append(d.log, query)
	if err, set := d.fail[query]; set || query != askVitess {
		return err
	}
	return &mysqlError{Number: 1193, Message: "unknown system variable"}
}

func (d *fakeDriver) statements() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]string{}, d.log...)
}

// open returns a pool of one connection.
func (d *fakeDriver) open(t *testing.T, c driver.Connector) *sql.DB {
	t.Helper()
	db := sql.OpenDB(c)
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// askMySQL asks MySQL whether it still has the transaction. The error below is the answer if it
// has. If it has not, askVitess asks whether it is Vitess, which takes the first text anywhere.
const (
	askMySQL  = "SET TRANSACTION READ WRITE"
	askVitess = "SELECT @@session_uuid"
)

var inTransaction = &mysqlError{Number: 1568, Message: "a transaction is in progress"}

// mysqlError has the fields of the error of go-sql-driver/mysql.
type mysqlError struct {
	Number  uint16
	Message string
}

func (e *mysqlError) Error() string { return e.Message }

type fakeConn struct{ d *fakeDriver }

func (c *fakeConn) Prepare(query string) (driver.Stmt, error) {
	if err := c.d.run("PREPARE " + query); err != nil {
		return nil, err
	}
	return &fakeStmt{d: c.d, query: query}, nil
}
func (c *fakeConn) Close() error              { return nil }
func (c *fakeConn) Begin() (driver.Tx, error) { return fakeTx{c.d}, c.d.run("BEGIN") }

type fakeFullConn struct{ *fakeConn }

func (c *fakeFullConn) BeginTx(context.Context, driver.TxOptions) (driver.Tx, error) {
	return c.Begin()
}
func (c *fakeFullConn) Ping(context.Context) error         { return c.d.run("PING") }
func (c *fakeFullConn) IsValid() bool                      { return c.d.valid }
func (c *fakeFullConn) ResetSession(context.Context) error { c.d.reset++; return nil }

func (c *fakeFullConn) ExecContext(_ context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if c.d.skip && len(args) > 0 {
		return nil, driver.ErrSkip
	}
	return driver.RowsAffected(1), c.d.run(query)
}

func (c *fakeFullConn) QueryContext(_ context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if c.d.skip && len(args) > 0 {
		return nil, driver.ErrSkip
	}
	return &fakeRows{err: c.d.rowsFail}, c.d.run(query)
}

func (c *fakeFullConn) CheckNamedValue(nv *driver.NamedValue) error {
	c.d.checked++
	if s, ok := nv.Value.(upper); ok {
		nv.Value = string(s)
		return nil
	}
	return driver.ErrSkip
}

// upper is a type that only the driver's own checker understands.
type upper string

type fakeStmt struct {
	d     *fakeDriver
	query string
}

func (s *fakeStmt) Close() error  { return nil }
func (s *fakeStmt) NumInput() int { return -1 }
func (s *fakeStmt) Exec([]driver.Value) (driver.Result, error) {
	return driver.RowsAffected(1), s.d.run(s.query)
}

func (s *fakeStmt) Query([]driver.Value) (driver.Rows, error) {
	return &fakeRows{err: s.d.rowsFail}, s.d.run(s.query)
}

func (s *fakeStmt) ColumnConverter(int) driver.ValueConverter {
	s.d.converted++
	return driver.DefaultParameterConverter
}

type fakeTx struct{ d *fakeDriver }

func (t fakeTx) Commit() error { return t.d.run("COMMIT") }

func (t fakeTx) Rollback() error {
	t.d.rollbacks++
	err := t.d.run("ROLLBACK")
	if t.d.silent != nil {
		<-t.d.silent
	}
	return err
}

type fakeRows struct{ err error }

func (r *fakeRows) Columns() []string { return []string{"n"} }
func (r *fakeRows) Close() error      { return nil }
func (r *fakeRows) Next([]driver.Value) error {
	if r.err != nil {
		return r.err
	}
	return io.EOF
}

// heard collects outcomes.
type heard struct {
	mu  sync.Mutex
	all []core.Outcome
}

func (h *heard) on(tx core.Tx) {
	tx.OnOutcome(func(o core.Outcome) {
		h.mu.Lock()
		h.all = append(h.all, o)
		h.mu.Unlock()
	})
}

func (h *heard) want(t *testing.T, want ...core.Outcome) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.all) != len(want) {
		t.Fatalf("heard %v, want %v", h.all, want)
	}
	for i := range want {
		if h.all[i] != want[i] {
			t.Fatalf("heard %v, want %v", h.all, want)
		}
	}
}

// readAll reads rows to their end, closes them and returns the error that came on the way.
func readAll(rows *sql.Rows, err error) error {
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
	}
	return rows.Err()
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantIs(t *testing.T, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Fatalf("error %v, want one wrapping %v", err, target)
	}
}

// noError fails the test if err is not nil, and goes on. Goroutines of a test may call it.
func noError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// wantErr fails the test unless err is the target. The rest says what was tried.
func wantErr(t testing.TB, err, target error, format string, args ...any) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Errorf("%s: %v, want %v", fmt.Sprintf(format, args...), err, target)
	}
}

// equal fails the test unless got is want. The rest says of what.
func equal[T comparable](t testing.TB, got, want T, format string, args ...any) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", fmt.Sprintf(format, args...), got, want)
	}
}

// errOf returns the error of a call whose result does not matter.
func errOf[T any](_ T, err error) error { return err }

// refused fails the test if err is nil. The rest says what was accepted.
func refused(t testing.TB, err error, format string, args ...any) {
	t.Helper()
	if err == nil {
		t.Errorf(format, args...)
	}
}
