package pgxoutbox

import (
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// watched returns the rows of a statement, and has done called after it; nil: nothing is called.
func watched(rows pgx.Rows, err error, done func(tag pgconn.CommandTag, err error)) pgx.Rows {
	switch {
	case done == nil:
		return rows
	case err != nil:
		done(pgconn.CommandTag{}, err)
		return rows
	}
	return &watchedRows{Rows: rows, done: done}
}

// watchedRows calls done when the rows are closed, because the result of the statement is known
// then. pgx closes rows after the last one, and when a row cannot be read.
type watchedRows struct {
	pgx.Rows
	done func(tag pgconn.CommandTag, err error)
}

func (r *watchedRows) tell() {
	if done := r.done; done != nil {
		r.done = nil
		done(r.CommandTag(), r.Err())
	}
}

// Close implements pgx.Rows.
func (r *watchedRows) Close() {
	r.Rows.Close()
	r.tell()
}

// Next implements pgx.Rows.
func (r *watchedRows) Next() bool {
	ok := r.Rows.Next()
	if !ok {
		r.tell()
	}
	return ok
}

// Scan implements pgx.Rows.
func (r *watchedRows) Scan(dest ...any) error {
	err := r.Rows.Scan(dest...)
	if err != nil {
		r.Close()
	}
	return err
}

// Values implements pgx.Rows.
func (r *watchedRows) Values() ([]any, error) {
	values, err := r.Rows.Values()
	if err != nil {
		r.Close()
	}
	return values, err
}

// watchedRow is the first of some rows, as a pgx.Row.
type watchedRow struct{ rows pgx.Rows }

// Scan implements pgx.Row.
func (r watchedRow) Scan(dest ...any) error {
	if err := r.rows.Err(); err != nil {
		r.rows.Close()
		return err
	}
	if !r.rows.Next() {
		if err := r.rows.Err(); err != nil {
			return err
		}
		return pgx.ErrNoRows
	}
	_ = r.rows.Scan(dest...) // Err returns its error
	r.rows.Close()
	return r.rows.Err()
}

// errRows are no rows, but an error.
type errRows struct{ err error }

var _ pgx.Rows = errRows{}

func (errRows) Close()                                       {}
func (r errRows) Err() error                                 { return r.err }
func (errRows) CommandTag() pgconn.CommandTag                { return pgconn.CommandTag{} }
func (errRows) FieldDescriptions() []pgconn.FieldDescription { return nil }
func (errRows) Next() bool                                   { return false }
func (r errRows) Scan(...any) error                          { return r.err }
func (r errRows) Values() ([]any, error)                     { return nil, r.err }
func (errRows) RawValues() [][]byte                          { return nil }
func (errRows) Conn() *pgx.Conn                              { return nil }
func (errRows) TypeMap() *pgtype.Map                         { return nil }
