package sqlkit

import (
	"context"
	"database/sql"
	"errors"

	"github.com/ormoutbox/ormoutbox/core"
)

// Conn has the common methods of *sql.DB, *sql.Tx and *sql.Conn.
type Conn interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// Querier is the part of core.Tx that statements need.
type Querier interface {
	Exec(ctx context.Context, query string, args ...any) (int64, error)
	Query(ctx context.Context, query string, args ...any) (core.Rows, error)
}

// On is a connection, a transaction or a pool as a Querier.
type On struct{ Conn Conn }

// Exec implements Querier.
func (o On) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	res, err := o.Conn.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// Query implements Querier.
func (o On) Query(ctx context.Context, query string, args ...any) (core.Rows, error) {
	rows, err := o.Conn.QueryContext(ctx, query, args...) //nolint:rowserrcheck // the caller checks rows.Err
	if err != nil {
		return nil, err // not a nil *sql.Rows in a non-nil interface
	}
	return rows, nil
}

// EachRow calls scan for each row of a query.
func EachRow(ctx context.Context, q Querier, text string, args []any, scan func(rows core.Rows) error) (err error) {
	rows, err := q.Query(ctx, text, args...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// Rows returns what scan makes of each row of a query.
func Rows[T any](ctx context.Context, q Querier, text string, args []any, scan func(rows core.Rows) (T, error),
) (all []T, err error) {
	err = EachRow(ctx, q, text, args, func(rows core.Rows) error {
		row, err := scan(rows)
		all = append(all, row)
		return err
	})
	return all, err
}

// Run runs the statements of fn, again if other transactions made them fail. what names them in
// errors.
type Run = func(ctx context.Context, what string, fn func(q Querier) error) error

// Ask returns what the last run of fn returned.
func Ask[T any](ctx context.Context, run Run, what string, fn func(q Querier) (T, error)) (answer T, err error) {
	err = run(ctx, what, func(q Querier) (err error) {
		answer, err = fn(q)
		return err
	})
	return answer, err
}

// AskRows is Rows for a query that runs alone.
func AskRows[T any](ctx context.Context, run Run, what, text string, args []any, scan func(rows core.Rows) (T, error),
) ([]T, error) {
	return Ask(ctx, run, what, func(q Querier) ([]T, error) { return Rows(ctx, q, text, args, scan) })
}

// Change runs a statement alone and returns how many rows it changed.
func Change(ctx context.Context, run Run, what, text string, args ...any) (int, error) {
	n, err := Ask(ctx, run, what, func(q Querier) (int64, error) { return q.Exec(ctx, text, args...) })
	return int(n), err
}

// Text scans a row of one text, for Rows.
func Text(rows core.Rows) (s string, err error) {
	err = rows.Scan(&s)
	return s, err
}

// FirstRow scans the first row of a query into dest and reports whether there is one.
func FirstRow(ctx context.Context, q Querier, text string, args []any, dest ...any) (found bool, err error) {
	rows, err := q.Query(ctx, text, args...)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	if !rows.Next() {
		return false, rows.Err()
	}
	return true, rows.Scan(dest...)
}
