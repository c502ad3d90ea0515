package bunoutbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/schema"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/adapter"
	"github.com/ormoutbox/ormoutbox/core/adapter/capture"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

// door is the connection that Bun finds for a captured statement. Nothing changes the text any more
// when it comes here. The door captures that one text.
type door struct {
	db     *bun.DB
	text   string
	op     core.Op
	table  *schema.Table
	value  any    // of the model
	was    query  // the query with its own connection
	place  func() // puts the door into the query
	remove func()

	models  []capture.Model // nil unless one has recorded events
	parts   []part
	refused error // why the statement must not be sent

	sent  atomic.Bool
	taken []func() // take the generated keys out of the models
}

// part is what one outbox has to do with the statement.
type part struct {
	ob      *Outbox
	mappers []adapter.Mapper
	named   bool // not only OnAll asks for the model
}

// query is the common method of Bun's queries: a statement made by NewRaw runs where the query
// runs.
type query interface {
	bun.Query
	NewRaw(query string, args ...any) *bun.RawQuery
}

// newDoor returns the door of a statement on a model, else nil.
func newDoor(event *bun.QueryEvent) *door {
	model, ok := event.Model.(bun.TableModel)
	if !ok {
		return nil
	}
	d := &door{db: event.DB, text: event.Query, table: model.Table(), value: model.Value()}
	switch q := event.IQuery.(type) {
	case *bun.InsertQuery:
		stands(d, q, core.OpCreate)
	case *bun.UpdateQuery:
		stands(d, q, core.OpUpdate)
	case *bun.DeleteQuery:
		stands(d, q, core.OpDelete)
	case *bun.MergeQuery:
		stands(d, q, core.OpUpsert)
		d.refused = fmt.Errorf("%w: a MERGE into %s does not say which rows it changes: call Publish",
			core.ErrNoAggregateID, d.table.Name)
	default:
		return nil
	}
	return d
}

// stands makes a door of a query.
func stands[Q any, P interface {
	*Q
	query
	Conn(db bun.IConn) P
}](d *door, q P, op core.Op) {
	d.op = op
	d.place = func() {
		was := *q // the only way to get the connection back
		d.was, d.remove = P(&was), func() { *q = was }
		q.Conn(d)
	}
}

// join adds an outbox. It reports whether the statement may cause events.
func (d *door) join(ob *Outbox, event *bun.QueryEvent) bool {
	for _, p := range d.parts {
		if p.ob == ob { // the *bun.DB has the hook twice
			return true
		}
	}
	p := part{ob: ob}
	p.mappers, p.named = ob.own.Mappers.For(d.table.Type, d.table.Name)
	has, err := ob.own.HasRecorder(d.table.Type, apart)
	if err == nil && has && d.models == nil {
		d.models, err = recording(event.DB.QueryGen(), d.table, d.value)
	}
	if err != nil {
		d.refused = err
	}
	if p.mappers == nil && d.models == nil && err == nil {
		return false
	}
	d.parts = append(d.parts, p)
	return true
}

// ExecContext captures the statement.
func (d *door) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if query != d.text {
		return rawOf(ctx, d.was, "?", bun.Safe(query)).Exec(ctx)
	}
	var res sql.Result
	err := d.capture(ctx, true, func(c *capture.Capture, s session) (err error) {
		res, err = c.Exec(ctx, s, query, args)
		if err == nil && d.op == core.OpCreate && s.Dialect() == core.SQLite { // later, it would be an event's id
			id, ierr := res.LastInsertId()
			res = inserted{res, id, ierr}
		}
		return err
	})
	return res, err
}

// inserted is a result whose id is known.
type inserted struct {
	sql.Result
	id  int64
	err error
}

func (r inserted) LastInsertId() (int64, error) { return r.id, r.err }

// QueryContext captures the statement, and returns the rows that Bun asked for.
func (d *door) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if query != d.text {
		return nil, errOther
	}
	var a *capture.Answer
	var failed error // which may come when the rows are read
	err := d.capture(ctx, false, func(c *capture.Capture, s session) error {
		a, failed = c.Query(ctx, s, query, args)
		return failed
	})
	if err != nil && (failed == nil || a.Columns == nil) {
		return nil, err
	}
	rows, done, rerr := a.Replay(err)
	done() // the rows stay usable
	return rows, rerr
}

// QueryRowContext is not used by Bun's queries.
func (d *door) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	return d.db.DB.QueryRowContext(sqltx.ContextWithError(ctx, errOther), query, args...)
}

var (
	errOther = errors.New("outbox: the query sent a statement other than the one that its hooks saw")
	errTwice = errors.New("outbox: the query has sent its statement twice: do not use one query in two goroutines")
)

// run runs a statement where the query would have run.
func (d *door) run(ctx context.Context, text string) error {
	_, err := rawOf(ctx, d.was, text).Exec(ctx)
	return err
}

// session runs the statements of a capture.
type session struct {
	inPool
	exec bool // Bun wants no rows
}

var _ capture.Session = session{}

// Send implements capture.Session.
func (s session) Send(ctx context.Context, text string, args []any) (sql.Result, error) {
	return s.ExecContext(ctx, text, args...)
}

// Ask implements capture.Session.
func (s session) Ask(ctx context.Context, text string, args []any) (*capture.Answer, error) {
	if !s.exec || len(args) > 0 {
		return answer(s.QueryContext(ctx, text, args...))
	}
	// Bun writes the values into the text. Without rows, its driver would not prepare it.
	a, err := answer(s.QueryOnce(ctx, text))
	if a != nil {
		local(a)
	}
	return a, err
}

func answer(rows *sql.Rows, err error) (*capture.Answer, error) {
	if err != nil {
		return nil, err
	}
	return capture.ReadAll(rows)
}

// local gives times the location that they have from prepared statements of pgx.
func local(a *capture.Answer) {
	for i, typ := range a.Types {
		if typ.DatabaseTypeName() != "TIMESTAMPTZ" {
			continue
		}
		for _, row := range a.Rows {
			if at, ok := row[i].(time.Time); ok {
				row[i] = at.Local()
			}
		}
	}
}

// Read implements capture.Session.
func (s session) Read(ctx context.Context, text string, args []any) (*capture.Answer, error) {
	return answer(s.QueryContext(ctx, text, args...))
}

// inPool is the transaction of a statement, together with its *bun.DB's pool.
type inPool struct {
	*sqltx.VisitedTx
	pool *sql.DB
}

// Pool is for core.Outbox.CheckTx.
func (t inPool) Pool() *sql.DB { return t.pool }

// laterInPool is inPool after the visit.
type laterInPool struct {
	core.Tx
	pool *sql.DB
}

// Pool is for core.Outbox.CheckTx.
func (t laterInPool) Pool() *sql.DB { return t.pool }

// capture sends the statement and reports what it changed. In a transaction of the program, On
// functions run when the connection is free again, so that they can use the bun.Tx. Otherwise
// everything happens while the connection is held, in a transaction that begins and ends there.
func (d *door) capture(
	ctx context.Context, exec bool, send func(c *capture.Capture, s session) error,
) (err error) {
	if d.sent.Swap(true) {
		return errTwice
	}
	if d.refused != nil {
		return d.refused
	}
	defer func() {
		if err != nil {
			for _, undo := range d.taken {
				undo()
			}
		}
	}()
	var c *capture.Capture
	var tx inPool
	var unseen error // why the connection was not reached
	var inOn context.Context
	end := func() {}
	defer func() { end() }()
	err = sqltx.VisitOrBegin(ctx, func(ctx context.Context, text string) error {
		unseen = d.run(ctx, text)
		return unseen
	}, func(v *sqltx.VisitedTx) error {
		tx = inPool{v, d.db.DB}
		for _, p := range d.parts {
			if err := p.ob.own.Check(ctx, tx); err != nil {
				return err
			}
		}
		last := d.parts[len(d.parts)-1]
		c = capture.New(d.statement(ctx), tx, &last.ob.server)
		err := send(c, session{tx, exec})
		switch own, ok := core.TxFromContext(ctx); {
		case err != nil:
			return err
		case v.Began():
			return d.tell(inTransaction(ctx, tx), c, func(ob *Outbox, events []core.Event) error {
				return ob.own.Publish(ctx, tx, events...)
			})
		case ok && v.Same(own):
			inOn = ctx //nolint:fatcontext // it lives longer
		default:
			var later core.Tx
			later, end = v.Later(d.run)
			inOn = inTransaction(ctx, laterInPool{later, d.db.DB})
		}
		return nil
	})
	switch {
	case c == nil && unseen != nil:
		return unseen
	case c == nil && (errors.Is(err, core.ErrNoTransaction) || errors.Is(err, core.ErrUntracked)):
		return adapter.CausesEvents(d.op, d.table.Name, fmt.Errorf("%w: use the tx that RunInTx gives, of the outbox "+
			"or of a pool opened with sqltx.Connector", err))
	case err != nil || inOn == nil:
		return err
	}
	return d.tell(inOn, c, func(ob *Outbox, events []core.Event) error {
		// The end of the statement's context must not hide that its events are missing.
		return sqltx.Visit(context.WithoutCancel(ctx), d.run, func(v *sqltx.VisitedTx) error {
			if !v.Same(tx.VisitedTx) {
				return fmt.Errorf("%w: an On function ended the statement's transaction", core.ErrNoTransaction)
			}
			return ob.own.Publish(ctx, inPool{v, d.db.DB}, events...)
		})
	})
}

// inTransaction returns the context of On functions. They must not find a transaction that the
// statement was not in.
func inTransaction(ctx context.Context, tx core.Tx) context.Context {
	return core.ContextWithTx(context.WithValue(ctx, ctxKey{}, nil), tx)
}

// tell writes the events of the changed rows. Recorded events go to the outbox that was added last.
func (d *door) tell(
	ctx context.Context, c *capture.Capture, publish func(ob *Outbox, events []core.Event) error,
) error {
	last := len(d.parts) - 1
	for _, p := range d.parts[:last] {
		err := c.TellOther(ctx, p.mappers, func(events []core.Event) error { return publish(p.ob, events) })
		if err != nil {
			return err
		}
	}
	return c.Tell(ctx, func(events []core.Event) error { return publish(d.parts[last].ob, events) })
}

// statement describes the statement for the capture.
func (d *door) statement(ctx context.Context) capture.Statement {
	last := d.parts[len(d.parts)-1]
	maps, named := false, d.models != nil
	for _, p := range d.parts {
		maps, named = maps || p.mappers != nil, named || p.named
	}
	fields := columns(d.table, maps)
	st := capture.Statement{
		Op: d.op, ReadText: true, Of: d.table.Name, Keys: len(d.table.PKs), Models: d.models, On: last.mappers,
		Counted: len(d.table.PKs) == 1 && d.table.PKs[0].AutoIncrement,
		Scan:    func(rows *capture.Answer) ([]reflect.Value, error) { return scan(d.table, fields, rows) },
		Key:     func(model reflect.Value) (string, error) { return keyOf(d.table, model) },
		Assign:  d.assign,
	}
	for _, f := range fields {
		st.Columns = append(st.Columns, string(f.SQLName))
	}
	if !named {
		st.LeftOut = last.ob.own.LeftOut(ctx, d.table.Type, d.table.Name)
	}
	return st
}

// assign gives a model the key that the database has generated. Bun does so only when it has read
// the answer.
func (d *door) assign(model, row reflect.Value) {
	for _, f := range d.table.PKs {
		if model.Type() != row.Type() || !f.HasZeroValue(model.Elem()) {
			continue
		}
		field := f.Value(model.Elem())
		before := reflect.New(field.Type()).Elem()
		before.Set(field)
		field.Set(f.Value(row.Elem()))
		d.taken = append(d.taken, func() { field.Set(before) })
	}
}
