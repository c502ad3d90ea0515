// Package inmemory reads the rows of a statement into memory, and returns them again as *sql.Rows.
package inmemory

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"io"
	"reflect"
)

// Rows are rows of a statement.
type Rows struct {
	Columns []string
	Types   []*sql.ColumnType // nil if they are not known
	Rows    [][]any           // as the driver gave them
}

// Replay returns the rows as *sql.Rows for code that reads nothing else. failed is the error after
// the last row, or nil. Call done after the rows have been read.
func (r *Rows) Replay(ctx context.Context, failed error) (rows *sql.Rows, done func(), err error) {
	db := sql.OpenDB(replay{r, failed})
	done = func() { _ = db.Close() }
	rows, err = db.QueryContext(ctx, "")
	return rows, done, err
}

// replay is a driver whose only answer is known.
type replay struct {
	*Rows
	failed error
}

func (r replay) Connect(context.Context) (driver.Conn, error) { return r, nil }
func (r replay) Driver() driver.Driver                        { return r }
func (r replay) Open(string) (driver.Conn, error)             { return r, nil }
func (r replay) Prepare(string) (driver.Stmt, error)          { return nil, driver.ErrSkip }
func (r replay) Begin() (driver.Tx, error)                    { return nil, driver.ErrSkip }
func (r replay) Close() error                                 { return nil }

func (r replay) QueryContext(context.Context, string, []driver.NamedValue) (driver.Rows, error) {
	return &replayed{replay: r}, nil
}

type replayed struct {
	replay
	next int
}

func (r *replayed) Columns() []string { return r.Rows.Columns }

func (r *replayed) Next(dest []driver.Value) error {
	if r.next == len(r.Rows.Rows) {
		if r.failed != nil {
			return r.failed
		}
		return io.EOF
	}
	for i, v := range r.Rows.Rows[r.next] {
		dest[i] = v
	}
	r.next++
	return nil
}

// ColumnTypeScanType and ColumnTypeDatabaseTypeName are for rows that are read into a map.

func (r *replayed) ColumnTypeScanType(i int) reflect.Type {
	if r.Types == nil {
		return reflect.TypeFor[any]()
	}
	return r.Types[i].ScanType()
}

func (r *replayed) ColumnTypeDatabaseTypeName(i int) string {
	if r.Types == nil {
		return ""
	}
	return r.Types[i].DatabaseTypeName()
}

// Source has the methods of *sql.Rows.
type Source interface {
	Columns() ([]string, error)
	ColumnTypes() ([]*sql.ColumnType, error)
	Next() bool
	Scan(dest ...any) error
	Err() error
	Close() error
}

// Read reads rows to their end and closes them. After an error the result has the rows before it.
func Read(rows Source) (r Rows, err error) {
	defer func() {
		// ORMs look at the driver's own error, so it is not wrapped.
		if cerr := rows.Close(); err == nil {
			err = cerr
		}
	}()
	names, err := rows.Columns()
	if err != nil {
		return r, err
	}
	r.Columns = append(r.Columns, names...) // a driver may use the slice again
	if r.Types, err = rows.ColumnTypes(); err != nil {
		return r, err
	}
	dest := make([]any, len(names))
	for rows.Next() {
		row := make([]any, len(names))
		for i := range row {
			dest[i] = &row[i]
		}
		if err := rows.Scan(dest...); err != nil {
			return r, err
		}
		r.Rows = append(r.Rows, row)
	}
	return r, rows.Err()
}
