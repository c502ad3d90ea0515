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
// generated with sql/execquery run the application's statements through ExecContext and
// QueryContext.
type tx struct {
	dialect.Tx // executes the statements
	driver     *driver
	followed   *sqltx.Tx
	core       core.Tx // the tracked transaction, for Publish

	own   bool        // begun for a single statement
	ended atomic.Bool // Commit or Rollback was called
}

// Exec implements dialect.Tx.
func (t *tx) Exec(ctx context.Context, query string, args, v any) error {
	return t.driver.run(ctx, t, query, args, v)
}

// Query implements dialect.Tx.
func (t *tx) Query(ctx context.Context, query string, args, v any) error {
	return t.driver.run(ctx, t, query, args, v)
}

// ExecContext runs a statement of the application.
func (t *tx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return t.driver.execContext(ctx, t, query, args)
}

// QueryContext is ExecContext for statements that return rows.
func (t *tx) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return t.driver.queryContext(ctx, t, query, args)
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
		field, ok := v.Type().FieldByName("Tx")
		if !ok {
			return nil
		}
		inner, err := v.FieldByIndexErr(field.Index)
		if err != nil || !inner.CanInterface() {
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
	inner := below
	for debug, ok := inner.(*dialect.DebugTx); ok; debug, ok = inner.(*dialect.DebugTx) {
		inner = debug.Tx
	}
	if t, ok := inner.(*entsql.Tx); ok {
		if sqlTx, ok := t.Tx.(*sql.Tx); ok {
			return conn{Tx: sqlTx, end: below}
		}
	}
	return foreign{conn{end: below}}
}

// conn is a *sql.Tx whose Commit and Rollback pass through the driver above it.
type conn struct {
	*sql.Tx
	end dialect.Tx
}

// SQLTx is for sqltx, which asks the driver for the state of the transaction.
func (c conn) SQLTx() *sql.Tx { return sqlTxOf(c.end) }

func (c conn) Commit() error   { return c.end.Commit() }
func (c conn) Rollback() error { return c.end.Rollback() }

// foreign is a transaction of a driver that is not part of Ent. It has no *sql.Tx, whose other
// methods are never called, because the transaction is not passed out as a *sqltx.Tx.
type foreign struct{ conn }

func (f foreign) ExecContext(ctx context.Context, query string, args ...any) (res sql.Result, err error) {
	err = f.end.Exec(ctx, query, notNil(args), &res)
	return res, err
}

func (f foreign) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	a, err := answer(ctx, f.end, query, args)
	if err != nil {
		return nil, err
	}
	return replay(a)
}

// resetVars resets the variables of sql.WithVar. Ent does so after a statement outside of
// transactions, and not in one, so that the next user of the connection would have them.
func (t *tx) resetVars(ctx context.Context) error {
	format, ok := map[core.Dialect]string{core.Postgres: "RESET %s", core.MySQL: "SET %s = NULL"}[t.driver.dialect]
	var errs []error
	for _, name := range varsOf(ctx) {
		if ok {
			errs = append(errs, t.driver.send(context.Background(), t, fmt.Sprintf(format, name), []any{}, nil))
		}
	}
	return errors.Join(errs...)
}

// varsOf returns the names of the variables that a context carries.
func varsOf(ctx context.Context) (names []string) {
	vars := reflect.ValueOf(ctx.Value(varsKey))
	if vars.Kind() != reflect.Struct || vars.NumField() == 0 || vars.Field(0).Kind() != reflect.Slice {
		return nil
	}
	for i := range vars.Field(0).Len() {
		names = append(names, vars.Field(0).Index(i).Field(0).String())
	}
	return names
}

// varsKey is the key of the variables, which Ent does not export.
var varsKey = func() (key any) {
	entsql.VarFromContext(spyingContext{context.Background(), &key}, "")
	return key
}()

// spyingContext notes which key is asked for.
type spyingContext struct {
	context.Context //nolint:containedctx // it is a context
	key             *any
}

func (c spyingContext) Value(key any) any {
	*c.key = key
	return nil
}
