package capture

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Answer has the rows that a statement returned.
type Answer struct {
	Columns []string
	Types   []*sql.ColumnType // nil if they are not known
	Rows    [][]any           // as the driver gave them
}

// Rows are rows that a statement returned, such as *sql.Rows.
type Rows interface {
	Columns() ([]string, error)
	ColumnTypes() ([]*sql.ColumnType, error)
	Next() bool
	Scan(dest ...any) error
	Err() error
	Close() error
}

// ReadAll reads rows to their end and closes them. After an error the result has the rows before
// it.
func ReadAll(rows Rows) (_ *Answer, err error) {
	defer func() {
		// ORMs look at the driver's own error, so it is not wrapped.
		if cerr := rows.Close(); err == nil {
			err = cerr
		}
	}()
	names, err := rows.Columns()
	if err != nil {
		return &Answer{}, err
	}
	a := &Answer{Columns: slices.Clone(names)} // a driver may use the slice again
	if a.Types, err = rows.ColumnTypes(); err != nil {
		return a, err
	}
	dest := make([]any, len(names))
	for rows.Next() {
		row := make([]any, len(names))
		for i := range row {
			dest[i] = &row[i]
		}
		if err := rows.Scan(dest...); err != nil {
			return a, err
		}
		a.Rows = append(a.Rows, row)
	}
	return a, rows.Err()
}

// part returns the columns from one to another, for the same rows.
func (a *Answer) part(from, to int) *Answer {
	p := &Answer{Columns: a.Columns[from:to], Rows: make([][]any, len(a.Rows))}
	if a.Types != nil {
		p.Types = a.Types[from:to]
	}
	for i, row := range a.Rows {
		p.Rows[i] = row[from:to]
	}
	return p
}

// plain makes texts and integers of the bytes that the text protocol of MySQL gives for them, so
// that they can be bound again: bytes would be compared without the column's character set.
func (a *Answer) plain() {
	for i := range a.Types {
		typ := a.Types[i].DatabaseTypeName()
		text := strings.Contains(typ, "CHAR") || strings.Contains(typ, "TEXT") || strings.Contains(typ, "DECIMAL") ||
			typ == "ENUM" || typ == "SET"
		number := strings.Contains(typ, "INT")
		for _, row := range a.Rows {
			b, ok := row[i].([]byte)
			switch {
			case !ok:
			case text:
				row[i] = string(b)
			case number:
				if n, err := strconv.ParseInt(string(b), 10, 64); err == nil {
					row[i] = n
				} else if n, err := strconv.ParseUint(string(b), 10, 64); err == nil {
					row[i] = n
				}
			}
		}
	}
}

// Replay returns the rows as *sql.Rows for code that reads nothing else. failed is the error after
// the last row, or nil. Call done after the rows have been read.
func (a *Answer) Replay(failed error) (rows *sql.Rows, done func(), err error) {
	db := sql.OpenDB(replay{a, failed})
	done = func() { _ = db.Close() }
	rows, err = db.QueryContext(context.Background(), "")
	return rows, done, err
}

// replay is a driver whose only answer is known.
type replay struct {
	*Answer
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

func (r *replayed) Columns() []string { return r.Answer.Columns }

func (r *replayed) Next(dest []driver.Value) error {
	if r.next == len(r.Rows) {
		if r.failed != nil {
			return r.failed
		}
		return io.EOF
	}
	for i, v := range r.Rows[r.next] {
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
