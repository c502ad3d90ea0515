package pgxoutbox

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
)

// access is a pool of pgx as a sqloutbox.Pool.
type access struct{ pool *pgxpool.Pool }

var _ sqloutbox.Pool = access{}

// Exec implements sqloutbox.Querier.
func (a access) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	return querier{a.pool}.Exec(ctx, query, args...)
}

// Query implements sqloutbox.Querier.
func (a access) Query(ctx context.Context, query string, args ...any) (core.Rows, error) {
	return querier{a.pool}.Query(ctx, query, args...)
}

// InTx implements sqloutbox.Pool.
func (a access) InTx(ctx context.Context, fn func(q sqloutbox.Querier) error) error {
	return pgx.BeginTxFunc(ctx, a.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		return fn(querier{tx})
	})
}

// Reset closes the connections, for sqloutbox.Pool.
func (a access) Reset() { a.pool.Reset() }

// With implements sqloutbox.Pool.
func (a access) With(settings map[string]string) sqloutbox.Querier {
	return pooled{pool: a.pool, first: settingsText(settings)}
}

// settingsText returns a statement that makes settings for the rest of its transaction.
func settingsText(settings map[string]string) string {
	var b strings.Builder
	b.WriteString("SELECT ")
	for i, name := range slices.Sorted(maps.Keys(settings)) {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "set_config('%s', '%s', true)", quoted(name), quoted(settings[name]))
	}
	return b.String()
}

func quoted(s string) string { return strings.ReplaceAll(s, "'", "''") }

// querier is a pool, a connection or a transaction of pgx as a sqloutbox.Querier.
type querier struct {
	on interface {
		Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
		Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	}
}

func (q querier) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	tag, err := q.on.Exec(ctx, query, args...)
	return tag.RowsAffected(), err
}

func (q querier) Query(ctx context.Context, query string, args ...any) (core.Rows, error) {
	rows, err := q.on.Query(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	return &resultRows{Rows: rows}, nil
}

// pooled runs each statement alone, on a connection that the pool lends for it.
type pooled struct {
	pool  *pgxpool.Pool
	first string
}

func (p pooled) Exec(ctx context.Context, query string, args ...any) (n int64, err error) {
	err = p.on(ctx, func(a alone, release func()) (err error) {
		defer release()
		n, err = a.Exec(ctx, query, args...)
		return err
	})
	return n, err
}

func (p pooled) Query(ctx context.Context, query string, args ...any) (rows core.Rows, err error) {
	err = p.on(ctx, func(a alone, release func()) error {
		own, err := a.query(ctx, query, args)
		if err != nil {
			release()
			return err
		}
		end := own.end
		own.end = func() error {
			defer release()
			return end()
		}
		rows = own
		return nil
	})
	return rows, err
}

// on calls fn with a connection, and again with another one if that one had died unused.
func (p pooled) on(ctx context.Context, fn func(a alone, release func()) error) error {
	for tries := int(p.pool.Stat().IdleConns()) + 1; ; tries-- {
		conn, err := p.pool.Acquire(ctx)
		if err != nil {
			return err
		}
		s := sessionOf(conn.Conn())
		err = fn(alone{session: s, first: p.first}, func() {
			s.leave()
			conn.Release()
		})
		if tries <= 1 || !errors.Is(err, driver.ErrBadConn) {
			return err
		}
	}
}
