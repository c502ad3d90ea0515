package entoutbox

import (
	"context"
	"database/sql"
	"fmt"
	"sync/atomic"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/adapter/capture"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

// exec executes a statement that causes events, and writes them.
func (t *tx) exec(ctx context.Context, s *statement, query string, args []any, v any) error {
	c, err := t.capture(ctx, s)
	if err != nil {
		return err
	}
	res, err := c.Exec(ctx, session{t}, query, args)
	if err == nil {
		err = c.Tell(t.telling(ctx, s), s.publish(ctx, t))
	}
	if r, ok := v.(*sql.Result); ok && err == nil {
		*r = res
	}
	return err
}

// query is exec for a statement that returns rows.
func (t *tx) query(ctx context.Context, s *statement, query string, args []any, v any) error {
	into, ok := v.(*entsql.Rows)
	if !ok {
		return fmt.Errorf("outbox: a statement of Ent returns rows into a %T", v)
	}
	c, err := t.capture(ctx, s)
	if err != nil {
		return err
	}
	a, err := c.Query(ctx, session{t}, query, args)
	if err == nil {
		err = c.Tell(t.telling(ctx, s), s.publish(ctx, t))
	}
	if err != nil {
		return err
	}
	rows, err := replay(a)
	into.ColumnScanner = rows
	return err
}

func (t *tx) capture(ctx context.Context, s *statement) (*capture.Capture, error) {
	if err := s.check(ctx, t); err != nil {
		return nil, err
	}
	s.capture = capture.New(s.describe(ctx, t), t.followed, &t.driver.server)
	return s.capture, nil
}

// telling returns the context of On functions. It carries the transaction of the statement, and no
// other one. Every client of the driver works in it.
func (t *tx) telling(ctx context.Context, s *statement) context.Context {
	if outer := scopeOf(ctx); outer != nil && outer.tx != t {
		ctx = context.WithValue(ctx, scopeKey{}, (*scope)(nil))
	}
	ctx = context.WithValue(ctx, callKey{}, (*call)(nil))
	ctx = context.WithValue(ctx, opKey{}, s.op)
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
	res = driverResult{}
	err = s.send(ctx, text, notNil(args), &res)
	return res, err
}

// Ask implements capture.Session.
func (s session) Ask(ctx context.Context, text string, args []any) (*capture.Answer, error) {
	if err := s.followed.Before(ctx, text); err != nil {
		return nil, err
	}
	var rows entsql.Rows
	err := s.Tx.Query(ctx, text, notNil(args), &rows)
	var a *capture.Answer
	if err == nil {
		a, err = capture.ReadAll(rows)
	}
	s.followed.Observe(text, nil, err)
	return a, err
}

// Read implements capture.Session.
func (s session) Read(ctx context.Context, text string, args []any) (*capture.Answer, error) {
	return s.Ask(ctx, text, args)
}

func notNil(args []any) []any {
	if args == nil {
		return []any{}
	}
	return args
}

// replay returns rows that were read already.
func replay(a *capture.Answer) (entsql.ColumnScanner, error) {
	rows, done, err := a.Replay(nil) //nolint:rowserrcheck // Ent checks it
	if err != nil {
		done()
		return nil, err
	}
	return replayed{rows, done}, nil
}

type replayed struct {
	*sql.Rows
	done func()
}

func (r replayed) Close() error {
	defer r.done()
	return r.Rows.Close()
}

// replayer is a driver that answers a query with rows that were read already.
type replayer struct {
	dialect.Driver
	rows *capture.Answer
}

func (r *replayer) Query(_ context.Context, _ string, _, v any) (err error) {
	into, ok := v.(*entsql.Rows)
	if !ok {
		return fmt.Errorf("outbox: a query of Ent returns rows into a %T", v)
	}
	into.ColumnScanner, err = replay(r.rows)
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
	name  string
	ended *atomic.Bool
}

var savepoints atomic.Int64

// nest sets a savepoint.
func (t *tx) nest(ctx context.Context) (dialect.Tx, error) {
	n := nestedTx{t, fmt.Sprintf("outbox_on_%d", savepoints.Add(1)), new(atomic.Bool)}
	return n, t.send(ctx, "SAVEPOINT "+n.name, []any{}, nil)
}

// Commit releases the savepoint.
func (n nestedTx) Commit() error { return n.end("RELEASE SAVEPOINT ") }

// Rollback rolls back to the savepoint.
func (n nestedTx) Rollback() error { return n.end("ROLLBACK TO SAVEPOINT ") }

func (n nestedTx) end(how string) error {
	if n.ended.Swap(true) {
		return sql.ErrTxDone
	}
	return n.send(context.Background(), how+n.name, []any{}, nil)
}

// begun runs a statement that causes events in a transaction of its own, because there is none.
func (d *driver) begun(ctx context.Context, fn func(t *tx) error) error {
	began, err := d.begin(ctx, d.Driver.Tx)
	if err != nil {
		return err
	}
	t := began.(*tx)
	t.own = true
	returned := false
	defer func() {
		if !returned { // a function of the program panicked
			_ = t.resetVars(ctx)
			_ = t.Rollback()
		}
	}()
	err = fn(t)
	returned = true
	if reset := t.resetVars(ctx); err == nil {
		err = reset
	}
	if err != nil {
		return withRollback(err, t.Rollback())
	}
	return t.Commit()
}

var _ core.Tx = (*sqltx.Tx)(nil)
