package entoutbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"

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
	clients atomic.Pointer[[]client] // those with a hook of an outbox

	mu    sync.Mutex // also held while clients changes
	calls []*call    // open calls with mappers, oldest first
}

// wrap returns drv as a driver that tracks transactions. It returns drv itself if drv does so
// already.
func wrap(drv dialect.Driver) (*driver, error) {
	if d, ok := drv.(*driver); ok {
		return d, nil
	}
	d, ok := dialects[drv.Dialect()]
	if !ok {
		return nil, fmt.Errorf("outbox: Ent dialect %q is not supported: use dialect.Postgres, dialect.MySQL or "+
			"dialect.SQLite", drv.Dialect())
	}
	return &driver{Driver: drv, dialect: d}, nil
}

// DB returns the pool of the driver, nil when the driver has none.
func (d *driver) DB() *sql.DB { return poolOf(d.Driver) }

// Tx begins a tracked transaction. Generated code calls it for client.Tx, and for mutations of
// several statements.
func (d *driver) Tx(ctx context.Context) (dialect.Tx, error) { return d.begin(ctx, d.Driver.Tx) }

// BeginTx is Tx with options. Generated code expects every driver to have it.
func (d *driver) BeginTx(ctx context.Context, opts *sql.TxOptions) (dialect.Tx, error) {
	b, ok := d.Driver.(interface {
		BeginTx(ctx context.Context, opts *sql.TxOptions) (dialect.Tx, error)
	})
	if !ok {
		return nil, fmt.Errorf("outbox: the driver %T has no BeginTx", d.Driver)
	}
	return d.begin(ctx, func(ctx context.Context) (dialect.Tx, error) { return b.BeginTx(ctx, opts) })
}

func (d *driver) begin(ctx context.Context, begin func(context.Context) (dialect.Tx, error)) (dialect.Tx, error) {
	if t := d.routed(ctx); t != nil {
		return t.nest(ctx)
	}
	if d.probed(ctx, names, nil) != nil {
		return nil, errNames
	}
	return d.follow(ctx, begin)
}

var errNames = errors.New("outbox: no transaction was to be begun")

// follow begins a tracked transaction.
func (d *driver) follow(ctx context.Context, begin func(context.Context) (dialect.Tx, error)) (*tx, error) {
	t := &tx{driver: d}
	followed, err := sqltx.Follow(ctx, d.DB(), d.dialect, func(ctx context.Context) (_ sqltx.TxConn, err error) {
		if t.Tx, err = begin(ctx); err != nil {
			return nil, err
		}
		return connOf(t.Tx), nil
	})
	if err != nil {
		return nil, err
	}
	t.followed, t.core = followed, followed
	if _, ok := followed.Conn().(foreign); ok {
		t.core = struct{ core.Tx }{followed} // it does not have all methods of *sqltx.Tx
	}
	d.probed(ctx, begins, t)
	return t, nil
}

// Exec implements dialect.Driver.
func (d *driver) Exec(ctx context.Context, query string, args, v any) error {
	return d.run(ctx, d.routed(ctx), query, args, v)
}

// Query is Exec for statements that return rows.
func (d *driver) Query(ctx context.Context, query string, args, v any) error {
	return d.run(ctx, d.routed(ctx), query, args, v)
}

// run executes a statement, in a transaction if there is one. A statement that causes events gets a
// transaction of its own.
func (d *driver) run(ctx context.Context, t *tx, query string, args, v any) error {
	if d.probed(ctx, asks, t) != nil {
		return nil
	}
	var s *statement
	var err error
	list, ok := args.([]any)
	if ok { // else any driver refuses it
		s, err = d.statement(ctx, query)
	}
	switch {
	case err != nil:
		return err
	case s != nil && t == nil:
		return d.begun(ctx, func(t *tx) error { return t.run(ctx, s, query, list, v) })
	case s != nil:
		return t.run(ctx, s, query, list, v)
	case t == nil:
		return execOrQuery(ctx, d.Driver, query, args, v)
	}
	return t.send(ctx, query, args, v)
}

func execOrQuery(ctx context.Context, on dialect.ExecQuerier, query string, args, v any) error {
	if _, ok := v.(*entsql.Rows); ok {
		return on.Query(ctx, query, args, v)
	}
	return on.Exec(ctx, query, args, v)
}

// ExecContext runs a statement of the application. Clients generated with the feature sql/execquery
// use it.
func (d *driver) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if t := d.routed(ctx); t != nil {
		return t.ExecContext(ctx, query, args...)
	}
	if d.probed(ctx, asks, nil) != nil {
		return driverResult{}, nil
	}
	return execContext(ctx, d.Driver, query, args)
}

// QueryContext is ExecContext for statements that return rows.
func (d *driver) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if t := d.routed(ctx); t != nil {
		return t.QueryContext(ctx, query, args...)
	}
	return queryContext(ctx, d.Driver, query, args)
}

func execContext(ctx context.Context, on any, query string, args []any) (sql.Result, error) {
	e, ok := on.(interface {
		ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	})
	if !ok {
		return nil, errors.New("outbox: the driver of Ent below has no ExecContext")
	}
	return e.ExecContext(ctx, query, args...)
}

func queryContext(ctx context.Context, on any, query string, args []any) (*sql.Rows, error) {
	q, ok := on.(interface {
		QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	})
	if !ok {
		return nil, errors.New("outbox: the driver of Ent below has no QueryContext")
	}
	return q.QueryContext(ctx, query, args...)
}
