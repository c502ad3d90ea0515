package sqltx

import (
	"context"
	"database/sql/driver"
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
	var res driver.Result
	guarded, err := s.conn.before(ctx, s.query)
	if err != nil {
		return nil, err
	}
	res, err = execStmt(ctx, s.inner, args)
	s.conn.after(ctx, s.query, err, guarded)
	return result(res, err)
}

func (s *trackingStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	var rows driver.Rows
	guarded, err := s.conn.before(ctx, s.query)
	if err != nil {
		return nil, err
	}
	rows, err = queryStmt(ctx, s.inner, args)
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
