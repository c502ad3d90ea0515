package entoutbox

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
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
	clients atomic.Pointer[[]client] // clients with a hook of an outbox

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
	own := &driver{Driver: drv, dialect: d}
	own.clients.Store(&[]client{})
	return own, nil
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

var errNames = errors.New("outbox: no transaction was to be begun")

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
func (d *driver) run(ctx context.Context, t *tx, query string, args, v any) (err error) {
	if d.probed(ctx, asks, t) != nil {
		return nil
	}
	var s *statement
	list, ok := args.([]any)
	if ok { // else any driver refuses it
		s, err = d.statement(ctx, query)
	}
	switch {
	case err != nil:
		return err
	case s == nil:
		return d.send(ctx, t, query, args, v)
	case t == nil:
		return d.begun(ctx, func(t *tx) error { return t.capture(ctx, s, query, list, v) })
	}
	return t.capture(ctx, s, query, list, v)
}

// send executes a statement as it is.
func (d *driver) send(ctx context.Context, t *tx, query string, args, v any) error {
	into, reads := v.(*entsql.Rows)
	_, err := seen(ctx, t, query, func() (rows *sql.Rows, err error) { //nolint:rowserrcheck,sqlclosecheck // Ent does
		if !reads {
			return nil, d.on(t).Exec(ctx, query, args, v)
		}
		if err = d.on(t).Query(ctx, query, args, v); err == nil && t != nil {
			var ok bool
			if rows, ok = into.ColumnScanner.(*sql.Rows); !ok {
				t.followed.Unseen() // an error during the reading of these rows is not seen
			}
		}
		return rows, err
	})
	return err
}

// on returns what executes statements.
func (d *driver) on(t *tx) dialect.ExecQuerier {
	if t == nil {
		return d.Driver
	}
	return t.Tx
}

// seen shows a statement to the tracked transaction, if there is one.
func seen[T any](ctx context.Context, t *tx, query string, run func() (T, error)) (none T, _ error) {
	if t == nil {
		return run()
	}
	if err := t.followed.Before(ctx, query); err != nil {
		return none, err
	}
	result, err := run()
	rows, _ := any(result).(*sql.Rows)
	t.followed.Observe(query, rows, err)
	return result, err
}

// ExecContext runs a statement of the application. Clients generated with the feature sql/execquery
// use it.
func (d *driver) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return d.execContext(ctx, d.routed(ctx), query, args)
}

// QueryContext is ExecContext for statements that return rows.
func (d *driver) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return d.queryContext(ctx, d.routed(ctx), query, args)
}

func (d *driver) execContext(ctx context.Context, t *tx, query string, args []any) (sql.Result, error) {
	if d.probed(ctx, asks, t) != nil {
		return sqldriver.ResultNoRows, nil
	}
	conn, ok := d.on(t).(entsql.ExecQuerier)
	if !ok {
		return nil, errNoConn
	}
	return seen(ctx, t, query, func() (sql.Result, error) { return conn.ExecContext(ctx, query, args...) })
}

func (d *driver) queryContext(ctx context.Context, t *tx, query string, args []any) (*sql.Rows, error) {
	conn, ok := d.on(t).(entsql.ExecQuerier)
	if !ok {
		return nil, errNoConn
	}
	return seen(ctx, t, query, func() (*sql.Rows, error) { return conn.QueryContext(ctx, query, args...) })
}

var errNoConn = errors.New("outbox: the driver of Ent below has no ExecContext and QueryContext")
