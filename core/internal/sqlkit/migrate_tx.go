package sqlkit

import (
	"context"
	"errors"
	"strings"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlerr"
)

// session is where the statements of a migration run.
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

// MigrateTx does what Migrate does with nothing but the transactions of t, for who has no pool. p
// must not name a schema that does not exist.
func MigrateTx(ctx context.Context, t core.Transactor, p Plan) error {
	return Retry(ctx, func() error {
		if p.Dialect == core.MySQL {
			return p.apply(ctx, onTransactor{t})
		}
		return t.RunInTx(ctx, func(ctx context.Context, tx core.Tx) error {
			if p.Dialect == core.Postgres {
				if err := (onTx{tx}).exec(ctx, "SELECT pg_advisory_xact_lock($1)", p.lock()); err != nil {
					return err
				}
			}
			return p.apply(ctx, onTx{tx})
		})
	})
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

// onTransactor runs each statement by itself, on MySQL and MariaDB, which commit after each change
// of the schema anyway. Several processes may do so at once: every statement may be repeated.
type onTransactor struct{ core.Transactor }

var errApplied = errors.New("applied")

func (t onTransactor) exec(ctx context.Context, query string, args ...any) error {
	change := strings.HasPrefix(query, "CREATE") || strings.HasPrefix(query, "ALTER")
	err := t.RunInTx(ctx, func(ctx context.Context, tx core.Tx) error {
		if err := (onTx{tx}).exec(ctx, query, args...); err != nil {
			return err
		}
		if change { // it has ended the transaction, in which there was nothing else
			return errApplied
		}
		return nil
	})
	if change && errors.Is(err, errApplied) || !change && sqlerr.UniqueViolation(err) { // or another process was faster
		return nil
	}
	return err
}

func (t onTransactor) ints(ctx context.Context, query string, args ...any) (all []int, err error) {
	err = t.RunInTx(ctx, func(ctx context.Context, tx core.Tx) (err error) {
		all, err = onTx{tx}.ints(ctx, query, args...)
		return err
	})
	return all, err
}
