package sqlkit

import (
	"context"

	"github.com/ormoutbox/ormoutbox/core"
)

// session runs the statements of a migration.
type session interface {
	exec(ctx context.Context, query string, args ...any) error
	ints(ctx context.Context, query string, args ...any) ([]int, error)
}

// onQuerier is a session on a transaction, a connection or a pool.
type onQuerier struct{ Querier }

func (o onQuerier) exec(ctx context.Context, query string, args ...any) error {
	_, err := o.Exec(ctx, query, args...)
	return err
}

func (o onQuerier) ints(ctx context.Context, query string, args ...any) (all []int, err error) {
	err = EachRow(ctx, o, query, args, func(rows core.Rows) error {
		var n int
		err := rows.Scan(&n)
		all = append(all, n)
		return err
	})
	return all, err
}

// MigrateTx does the same as Migrate in transactions of t, for callers without a pool. The schema
// of p must exist.
func MigrateTx(ctx context.Context, t core.Transactor, p Plan) error {
	return Retry(ctx, func() error { return of(p.Dialect).migrateTx(ctx, t, p) })
}
