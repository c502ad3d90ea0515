package sqltx

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"reflect"
)

// trackingStmt shows each execution of a prepared statement to the transaction that its connection
// is in at that time.
type trackingStmt struct {
	inner driver.Stmt
	conn  *trackingConn
	query string
}

var (
	_ driver.Stmt              = (*trackingStmt)(nil)
	_ driver.StmtExecContext   = (*trackingStmt)(nil)
	_ driver.StmtQueryContext  = (*trackingStmt)(nil)
	_ driver.NamedValueChecker = (*trackingStmt)(nil)
	_ driver.ColumnConverter   = (*trackingStmt)(nil) //nolint:staticcheck // some drivers still have it
)

func (s *trackingStmt) Close() error  { return s.inner.Close() }
func (s *trackingStmt) NumInput() int { return s.inner.NumInput() }

func (s *trackingStmt) Exec(args []driver.Value) (driver.Result, error) {
	return s.ExecContext(context.Background(), namedValues(args))
}

func (s *trackingStmt) Query(args []driver.Value) (driver.Rows, error) {
	return s.QueryContext(context.Background(), namedValues(args))
}

func (s *trackingStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	guarded, err := s.conn.before(ctx, s.query)
	if err != nil {
		return nil, err
	}
	res, err := execStmt(ctx, s.inner, args)
	s.conn.after(ctx, s.query, err, guarded)
	return result(res, err)
}

func (s *trackingStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	guarded, err := s.conn.before(ctx, s.query)
	if err != nil {
		return nil, err
	}
	rows, err := queryStmt(ctx, s.inner, args)
	return s.conn.wrapRows(ctx, s.query, rows, err, guarded)
}

func execStmt(ctx context.Context, stmt driver.Stmt, args []driver.NamedValue) (driver.Result, error) {
	if e, ok := stmt.(driver.StmtExecContext); ok {
		return e.ExecContext(ctx, args)
	}
	values, err := plainValues(ctx, args)
	if err != nil {
		return nil, err
	}
	return stmt.Exec(values) //nolint:staticcheck // old drivers have only this
}

func queryStmt(ctx context.Context, stmt driver.Stmt, args []driver.NamedValue) (driver.Rows, error) {
	if q, ok := stmt.(driver.StmtQueryContext); ok {
		return q.QueryContext(ctx, args)
	}
	values, err := plainValues(ctx, args)
	if err != nil {
		return nil, err
	}
	return stmt.Query(values) //nolint:staticcheck // old drivers have only this
}

func (s *trackingStmt) CheckNamedValue(nv *driver.NamedValue) error {
	if checker, ok := s.inner.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(nv)
	}
	return s.conn.CheckNamedValue(nv)
}

func (s *trackingStmt) ColumnConverter(i int) driver.ValueConverter {
	if cc, ok := s.inner.(driver.ColumnConverter); ok { //nolint:staticcheck // some drivers still have it
		return cc.ColumnConverter(i)
	}
	return driver.DefaultParameterConverter
}

func namedValues(args []driver.Value) []driver.NamedValue {
	named := make([]driver.NamedValue, len(args))
	for i, v := range args {
		named[i] = driver.NamedValue{Ordinal: i + 1, Value: v}
	}
	return named
}

// trackingRows reports errors to the tracker that come while rows are read. On MySQL a deadlock may
// reach its victim only there.
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
