package entoutbox

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"fmt"
	"sync/atomic"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"

	"github.com/ormoutbox/ormoutbox/core/adapter/capture"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

// capture executes a statement that causes events, and writes them.
func (t *tx) capture(ctx context.Context, s *statement, query string, args []any, v any) error {
	if err := s.check(ctx, t); err != nil {
		return err
	}
	c := capture.New(s.describe(ctx, t), t.followed, &t.driver.server)
	s.capture = c
	if into, ok := v.(*entsql.Rows); ok {
		a, err := c.Query(ctx, session{t}, query, args)
		if err == nil {
			err = s.tell(ctx, t)
		}
		if err != nil {
			return err
		}
		into.ColumnScanner, err = replay(a) //nolint:rowserrcheck // Ent checks it
		return err
	}
	res, err := c.Exec(ctx, session{t}, query, args)
	if err == nil {
		err = s.tell(ctx, t)
	}
	if r, ok := v.(*sql.Result); ok && err == nil {
		*r = res
	}
	return err
}

// telling returns the context for On functions. It carries the transaction of the statement, and no
// other one. Every client of the driver works in it.
func (t *tx) telling(ctx context.Context) context.Context {
	if outer := scopeOf(ctx); outer != nil && outer.tx != t {
		ctx = context.WithValue(ctx, scopeKey{}, (*scope)(nil))
	}
	ctx = context.WithValue(ctx, callKey{}, (*call)(nil))
	ctx = context.WithValue(ctx, routeKey{}, t)
	return sqltx.ContextWithTx(ctx, t.core, "entoutbox")
}

type routeKey struct{}

// routed returns the transaction of the On function that has this context, until it ends.
func (d *driver) routed(ctx context.Context) *tx {
	t, _ := ctx.Value(routeKey{}).(*tx)
	if t == nil || t.driver != d || t.ended.Load() {
		return nil
	}
	return t
}

// session runs the statements of a Capture where Ent runs its own.
type session struct{ *tx }

// Send implements capture.Session.
func (s session) Send(ctx context.Context, text string, args []any) (res sql.Result, err error) {
	res = sqldriver.ResultNoRows // unless the driver returns a result
	err = s.driver.send(ctx, s.tx, text, notNil(args), &res)
	return res, err
}

// Ask implements capture.Session.
func (s session) Ask(ctx context.Context, text string, args []any) (*capture.Answer, error) {
	return seen(ctx, s.tx, text, func() (*capture.Answer, error) { return answer(ctx, s.Tx, text, args) })
}

// Read implements capture.Session.
func (s session) Read(ctx context.Context, text string, args []any) (*capture.Answer, error) {
	return s.Ask(ctx, text, args)
}

func answer(ctx context.Context, tx dialect.Tx, text string, args []any) (*capture.Answer, error) {
	var rows entsql.Rows
	if err := tx.Query(ctx, text, notNil(args), &rows); err != nil {
		return nil, err
	}
	return capture.ReadAll(rows)
}

func notNil(args []any) []any {
	if args == nil {
		return []any{}
	}
	return args
}

// replay returns rows that were read already.
func replay(a *capture.Answer) (*sql.Rows, error) {
	rows, done, err := a.Replay(nil)
	done() // the rows stay usable
	return rows, err
}

// reader is a driver that answers queries with its own function.
type reader struct {
	dialect.Driver
	answer func(query string) (*sql.Rows, error)
}

func (r *reader) Query(_ context.Context, query string, _, v any) (err error) {
	into, ok := v.(*entsql.Rows)
	if !ok {
		return fmt.Errorf("outbox: a query of Ent returns rows into a %T", v)
	}
	into.ColumnScanner, err = r.answer(query) //nolint:rowserrcheck // Ent checks it
	return err
}

// txDriver is the driver of entities in a transaction whose generated code is not known.
type txDriver struct{ *tx }

func (d txDriver) Dialect() string                        { return d.driver.Dialect() }
func (d txDriver) Close() error                           { return nil }
func (d txDriver) Tx(context.Context) (dialect.Tx, error) { return dialect.NopTx(d), nil }

// nestedTx is what Ent, or an On function, begins in the context of an On function: a savepoint.
type nestedTx struct {
	*tx
	name string
	done atomic.Bool
}

var savepoints atomic.Int64

// nest sets a savepoint.
func (t *tx) nest(ctx context.Context) (dialect.Tx, error) {
	n := &nestedTx{tx: t, name: fmt.Sprintf("outbox_on_%d", savepoints.Add(1))}
	return n, t.driver.send(ctx, t, "SAVEPOINT "+n.name, []any{}, nil)
}

// Commit releases the savepoint.
func (n *nestedTx) Commit() error { return n.end("RELEASE SAVEPOINT ") }

// Rollback rolls back to the savepoint.
func (n *nestedTx) Rollback() error { return n.end("ROLLBACK TO SAVEPOINT ") }

func (n *nestedTx) end(how string) error {
	if n.done.Swap(true) {
		return sql.ErrTxDone
	}
	return n.driver.send(context.Background(), n.tx, how+n.name, []any{}, nil)
}

// begun runs a statement that causes events in a transaction of its own, because there is none.
func (d *driver) begun(ctx context.Context, fn func(t *tx) error) error {
	began, err := d.begin(ctx, d.Driver.Tx)
	if err != nil {
		return err
	}
	t := began.(*tx)
	t.own = true
	return ending(t, func() (err error) {
		defer func() {
			if reset := t.resetVars(ctx); err == nil {
				err = reset
			}
		}()
		return fn(t)
	})
}
