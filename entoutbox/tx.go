package entoutbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"sync/atomic"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

// tx is a transaction of driver. Generated code runs its statements through Exec and Query; clients
// generated with sql/execquery run those of the application through ExecContext and QueryContext.
type tx struct {
	dialect.Tx // executes the statements
	driver     *driver
	followed   *sqltx.Tx
	core       core.Tx // the tracked transaction, for Publish

	own   bool        // begun for a single statement
	ended atomic.Bool // Commit or Rollback was called
}

// follow sets the tracked transaction after it has begun.
func (t *tx) follow(followed *sqltx.Tx) {
	t.followed, t.core = followed, followed
	if _, ok := followed.Conn().(foreign); ok {
		t.core = struct{ core.Tx }{followed} // it does not have all methods of *sqltx.Tx
	}
}

// Exec implements dialect.Tx.
func (t *tx) Exec(ctx context.Context, query string, args, v any) error {
	if t.driver.answer(ctx, query, t) {
		return nil
	}
	s, argv, err := t.driver.statementOf(ctx, query, args)
	if err != nil {
		return err
	}
	if s != nil {
		return t.exec(ctx, s, query, argv, v)
	}
	return t.send(ctx, query, args, v)
}

// send executes a statement as it is.
func (t *tx) send(ctx context.Context, query string, args, v any) error {
	if err := t.followed.Before(ctx, query); err != nil {
		return err
	}
	err := t.Tx.Exec(ctx, query, args, v)
	t.followed.Observe(query, nil, err)
	return err
}

// Query implements dialect.Tx.
func (t *tx) Query(ctx context.Context, query string, args, v any) error {
	s, argv, err := t.driver.statementOf(ctx, query, args)
	if err != nil {
		return err
	}
	if s != nil {
		return t.query(ctx, s, query, argv, v)
	}
	if err := t.followed.Before(ctx, query); err != nil {
		return err
	}
	err = t.Tx.Query(ctx, query, args, v)
	var rows *sql.Rows
	if r, ok := v.(*entsql.Rows); ok && err == nil {
		if rows, ok = r.ColumnScanner.(*sql.Rows); !ok {
			t.followed.Unseen() // an error during the reading of these rows is not seen
		}
	}
	t.followed.Observe(query, rows, err)
	return err
}

// ExecContext runs a statement of the application. It also answers a probe, which asks for the
// transaction.
func (t *tx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if t.driver.answer(ctx, query, t) {
		return driverResult{}, nil
	}
	e, ok := t.Tx.(executor)
	if !ok {
		return nil, errNoExec
	}
	if err := t.followed.Before(ctx, query); err != nil {
		return nil, err
	}
	res, err := e.ExecContext(ctx, query, args...)
	t.followed.Observe(query, nil, err)
	return res, err
}

// QueryContext is ExecContext for statements that return rows.
func (t *tx) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	q, ok := t.Tx.(querier)
	if !ok {
		return nil, errNoQuery
	}
	if err := t.followed.Before(ctx, query); err != nil {
		return nil, err
	}
	rows, err := q.QueryContext(ctx, query, args...)
	t.followed.Observe(query, rows, err)
	return rows, err
}

// Commit commits, unless an event could not be written: then it rolls back.
func (t *tx) Commit() error {
	t.ended.Store(true)
	return t.followed.Commit()
}

// Rollback rolls back.
func (t *tx) Rollback() error {
	t.ended.Store(true)
	return t.followed.Rollback()
}

// sqlTxOf returns the transaction below, nil if there is none. A driver of an application, such as
// one for traces, has the transaction that it wraps in a field Tx, as Ent's own have.
func sqlTxOf(t dialect.Tx) *sql.Tx {
	for {
		if own, ok := t.(*entsql.Tx); ok {
			sqlTx, _ := own.Tx.(*sql.Tx)
			return sqlTx
		}
		v := reflect.Indirect(reflect.ValueOf(t))
		if v.Kind() != reflect.Struct {
			return nil
		}
		inner := v.FieldByName("Tx")
		if !inner.IsValid() || !inner.CanInterface() {
			return nil
		}
		if t, _ = reflect.TypeAssert[dialect.Tx](inner); t == nil {
			return nil
		}
	}
}

// connOf returns the connection for the outbox's own statements in a transaction of Ent. The
// statements do not pass through loggers, but the commit and the rollback do.
func connOf(below dialect.Tx) sqltx.TxConn {
	for inner := below; ; {
		switch t := inner.(type) {
		case *dialect.DebugTx:
			inner = t.Tx
			continue
		case *entsql.Tx:
			if sqlTx, ok := t.Tx.(*sql.Tx); ok {
				return conn{Tx: sqlTx, end: below}
			}
		}
		return foreign{below}
	}
}

// conn is a *sql.Tx whose Commit and Rollback pass through the driver above it.
type conn struct {
	*sql.Tx
	end dialect.Tx
}

// SQLTx is for sqltx, which asks the driver for the state of the transaction.
func (c conn) SQLTx() *sql.Tx { return c.Tx }

func (c conn) Commit() error   { return c.end.Commit() }
func (c conn) Rollback() error { return c.end.Rollback() }

// foreign is a transaction of a driver that is not part of Ent.
type foreign struct{ dialect.Tx }

// SQLTx is for sqltx, as that of conn.
func (f foreign) SQLTx() *sql.Tx { return sqlTxOf(f.Tx) }

func (f foreign) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	var res entsql.Result
	if args == nil {
		args = []any{}
	}
	if err := f.Exec(ctx, query, args, &res); err != nil {
		return nil, err
	}
	return res, nil
}

func (f foreign) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if q, ok := f.Tx.(querier); ok {
		return q.QueryContext(ctx, query, args...)
	}
	var rows entsql.Rows
	if args == nil {
		args = []any{}
	}
	if err := f.Query(ctx, query, args, &rows); err != nil {
		return nil, err
	}
	r, ok := rows.ColumnScanner.(*sql.Rows)
	if !ok {
		return nil, errors.Join(fmt.Errorf("outbox: the transaction %T returned rows of type %T", f.Tx,
			rows.ColumnScanner), rows.Close())
	}
	return r, nil
}

var errForeign = errors.New("outbox: the driver of Ent does not offer this")

// QueryRowContext is never called, because a transaction on a foreign is never passed out as a
// *sqltx.Tx.
func (f foreign) QueryRowContext(context.Context, string, ...any) *sql.Row { return nil }

func (f foreign) PrepareContext(context.Context, string) (*sql.Stmt, error) { return nil, errForeign }
