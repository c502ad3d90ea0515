package entoutbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"entgo.io/ent/dialect"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/adapter/capture"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

// driver replaces a driver of Ent and begins tracked transactions. It is below the generated code,
// whose hooks on commits can fail after the COMMIT. So it sees the real end of each transaction. It
// captures the statements that cause events: there the text has what every hook and policy added.
type driver struct {
	dialect.Driver
	dialect core.Dialect
	server  capture.Server
	clients atomic.Pointer[[]*client] // those with a hook of an outbox

	mu    sync.Mutex // also held while clients changes
	calls []*call    // open calls with mappers, oldest first
}

// wrap returns drv as a driver that tracks transactions. It returns drv itself if drv does so
// already.
func wrap(drv dialect.Driver) (*driver, error) {
	if d, ok := drv.(*driver); ok {
		return d, nil
	}
	d, err := dialectOf(drv.Dialect())
	if err != nil {
		return nil, err
	}
	return &driver{Driver: drv, dialect: d}, nil
}

func dialectOf(name string) (core.Dialect, error) {
	switch name {
	case dialect.Postgres:
		return core.Postgres, nil
	case dialect.MySQL:
		return core.MySQL, nil
	case dialect.SQLite:
		return core.SQLite, nil
	}
	return "", fmt.Errorf("outbox: Ent dialect %q is not supported: use dialect.Postgres, dialect.MySQL or "+
		"dialect.SQLite", name)
}

// DB returns the pool of the driver, nil when the driver has none.
func (d *driver) DB() *sql.DB { return poolOf(d.Driver) }

// Tx begins a tracked transaction. Generated code calls it for client.Tx, and for mutations of
// several statements.
func (d *driver) Tx(ctx context.Context) (dialect.Tx, error) {
	if t := d.routed(ctx); t != nil {
		return t.nest(ctx)
	}
	return d.begin(ctx, d.Driver.Tx)
}

// BeginTx is Tx with options. Generated code expects every driver to have it.
func (d *driver) BeginTx(ctx context.Context, opts *sql.TxOptions) (dialect.Tx, error) {
	if t := d.routed(ctx); t != nil {
		return t.nest(ctx)
	}
	b, ok := d.Driver.(interface {
		BeginTx(ctx context.Context, opts *sql.TxOptions) (dialect.Tx, error)
	})
	if !ok {
		return nil, fmt.Errorf("outbox: the driver %T has no BeginTx", d.Driver)
	}
	return d.begin(ctx, func(ctx context.Context) (dialect.Tx, error) { return b.BeginTx(ctx, opts) })
}

func (d *driver) begin(ctx context.Context, begin func(context.Context) (dialect.Tx, error)) (dialect.Tx, error) {
	if err := d.introduce(ctx); err != nil {
		return nil, err
	}
	t := &tx{driver: d}
	followed, err := sqltx.Follow(ctx, d.DB(), d.dialect, func(ctx context.Context) (sqltx.TxConn, error) {
		below, err := begin(ctx)
		if err != nil {
			return nil, err
		}
		t.Tx = below
		return connOf(below), nil
	})
	if err != nil {
		return nil, err
	}
	t.follow(followed)
	arrive(ctx, t)
	return t, nil
}

// Exec implements dialect.Driver. A statement that causes events gets a transaction of its own.
func (d *driver) Exec(ctx context.Context, query string, args, v any) error {
	if d.answer(ctx, query, nil) {
		return nil
	}
	if t := d.routed(ctx); t != nil {
		return t.Exec(ctx, query, args, v)
	}
	s, argv, err := d.statementOf(ctx, query, args)
	if err != nil {
		return err
	}
	if s == nil {
		return d.Driver.Exec(ctx, query, args, v)
	}
	return d.begun(ctx, func(t *tx) error { return t.exec(ctx, s, query, argv, v) })
}

// Query is Exec for statements that return rows.
func (d *driver) Query(ctx context.Context, query string, args, v any) error {
	if t := d.routed(ctx); t != nil {
		return t.Query(ctx, query, args, v)
	}
	s, argv, err := d.statementOf(ctx, query, args)
	if err != nil {
		return err
	}
	if s == nil {
		return d.Driver.Query(ctx, query, args, v)
	}
	return d.begun(ctx, func(t *tx) error { return t.query(ctx, s, query, argv, v) })
}

// ExecContext runs a statement outside of transactions. Clients generated with the feature
// sql/execquery use it.
func (d *driver) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	t := d.routed(ctx)
	if d.answer(ctx, query, t) {
		return driverResult{}, nil
	}
	if t != nil {
		return t.ExecContext(ctx, query, args...)
	}
	e, ok := d.Driver.(executor)
	if !ok {
		return nil, errNoExec
	}
	return e.ExecContext(ctx, query, args...)
}

// QueryContext is ExecContext for statements that return rows.
func (d *driver) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if t := d.routed(ctx); t != nil {
		return t.QueryContext(ctx, query, args...)
	}
	q, ok := d.Driver.(querier)
	if !ok {
		return nil, errNoQuery
	}
	return q.QueryContext(ctx, query, args...)
}

type executor interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

var (
	errNoExec  = errors.New("outbox: the driver of Ent below has no ExecContext")
	errNoQuery = errors.New("outbox: the driver of Ent below has no QueryContext")
)
