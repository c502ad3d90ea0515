package sqlkit

import (
	"context"
	"errors"

	"github.com/ormoutbox/ormoutbox/core"
)

// session runs the statements of a migration.
type session interface {
	exec(ctx context.Context, query string, args ...any) error
	ints(ctx context.Context, query string, args ...any) ([]int, error)
}

type onConn struct{ Conn }

func (c onConn) exec(ctx context.Context, query string, args ...any) error {
	return exec(ctx, c.Conn, query, args...)
}

func (c onConn) ints(ctx context.Context, query string, args ...any) ([]int, error) {
	return ints(ctx, c.Conn, query, args...)
}

// MigrateTx does the same as Migrate in transactions of t, for callers without a pool. The schema
// of p must exist.
func MigrateTx(ctx context.Context, t core.Transactor, p Plan) error {
	return Retry(ctx, func() error { return of(p.Dialect).migrateTx(ctx, t, p) })
}

type onTx struct{ core.Tx }

func (t onTx) exec(ctx context.Context, query string, args ...any) error {
	_, err := t.Exec(ctx, query, args...)
	return err
}

func (t onTx) ints(ctx context.Context, query string, args ...any) (all []int, err error) {
	rows, err := t.Query(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var n int
		if err := rows.Scan(&n); err != nil {
			return nil, err
		}
		all = append(all, n)
	}
	return all, rows.Err()
}
