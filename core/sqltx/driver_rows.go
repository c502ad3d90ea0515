package sqltx

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"reflect"
)

// trackingRows shows the tracker errors that come while rows are read. On MySQL the victim of a
// deadlock may learn of it only there.
type trackingRows struct {
	inner   driver.Rows
	conn    *trackingConn
	tracker *Tracker
	guarded bool  // the guard of the statement is still set
	failed  error // an error came while they were read
	closed  bool
}

var (
	_ driver.RowsNextResultSet              = (*trackingRows)(nil)
	_ driver.RowsColumnTypeScanType         = (*trackingRows)(nil)
	_ driver.RowsColumnTypeDatabaseTypeName = (*trackingRows)(nil)
	_ driver.RowsColumnTypeLength           = (*trackingRows)(nil)
	_ driver.RowsColumnTypeNullable         = (*trackingRows)(nil)
	_ driver.RowsColumnTypePrecisionScale   = (*trackingRows)(nil)
)

func (r *trackingRows) observe(err error) error {
	if err != nil && !errors.Is(err, io.EOF) {
		r.failed = err
		r.tracker.Observe("", err)
	}
	return err
}

func (r *trackingRows) Columns() []string              { return r.inner.Columns() }
func (r *trackingRows) Next(dest []driver.Value) error { return r.observe(r.inner.Next(dest)) }

// Close also asks the database whether the transaction survived an error that came with the rows:
// the connection is free again. database/sql closes rows after an error.
func (r *trackingRows) Close() error {
	err := r.observe(r.inner.Close())
	if !r.closed && r.conn.tracker == r.tracker && (r.guarded || r.failed != nil) {
		r.conn.after(context.Background(), "", r.failed, r.guarded)
	}
	r.closed = true
	return err
}

func (r *trackingRows) HasNextResultSet() bool {
	n, ok := r.inner.(driver.RowsNextResultSet)
	return ok && n.HasNextResultSet()
}

func (r *trackingRows) NextResultSet() error {
	if n, ok := r.inner.(driver.RowsNextResultSet); ok {
		return r.observe(n.NextResultSet())
	}
	return io.EOF
}

func (r *trackingRows) ColumnTypeScanType(i int) reflect.Type {
	if c, ok := r.inner.(driver.RowsColumnTypeScanType); ok {
		return c.ColumnTypeScanType(i)
	}
	return reflect.TypeFor[any]()
}

func (r *trackingRows) ColumnTypeDatabaseTypeName(i int) string {
	if c, ok := r.inner.(driver.RowsColumnTypeDatabaseTypeName); ok {
		return c.ColumnTypeDatabaseTypeName(i)
	}
	return ""
}

func (r *trackingRows) ColumnTypeLength(i int) (int64, bool) {
	if c, ok := r.inner.(driver.RowsColumnTypeLength); ok {
		return c.ColumnTypeLength(i)
	}
	return 0, false
}

func (r *trackingRows) ColumnTypeNullable(i int) (nullable, ok bool) {
	if c, has := r.inner.(driver.RowsColumnTypeNullable); has {
		return c.ColumnTypeNullable(i)
	}
	return false, false
}

func (r *trackingRows) ColumnTypePrecisionScale(i int) (precision, scale int64, ok bool) {
	if c, has := r.inner.(driver.RowsColumnTypePrecisionScale); has {
		return c.ColumnTypePrecisionScale(i)
	}
	return 0, 0, false
}
