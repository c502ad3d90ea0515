package sqltx

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/errtext"
)

// probe travels in a context to a connection of a pool opened with Connector. The connection writes
// its answer into it.
type probe struct {
	seen    bool
	dialect core.Dialect
	tracker *Tracker
	refused *refusedCommits
	pool    *sql.DB // of a connection that was lent to TrackConn
}

type probeKey struct{}

const (
	probeMark = "outbox:probe"
	// A connection of Connector answers the query without executing it. Other connections execute
	// it, so it must be harmless everywhere.
	probeQuery = "SELECT 1 /* " + probeMark + " */"
	// The comment is code on MySQL and MariaDB; '1' = 1 is false on SQLite, where a text never
	// equals a number.
	dialectQuery = "SELECT CASE WHEN 1 = 0 /*! OR 1 = 1 */ THEN 'mysql' WHEN '1' = 1 THEN 'postgres' ELSE 'sqlite' END"
)

// answer recognises a probe and gives it the transaction of the connection. err is for
// database/sql.
func (c *trackingConn) answer(ctx context.Context, query string) (ok bool, err error) {
	if !strings.Contains(query, probeMark) {
		return false, nil
	}
	if v, ok := ctx.Value(visitKey{}).(*visit); ok {
		return true, c.visit(ctx, v)
	}
	if f, ok := ctx.Value(flushKey{}).(*flush); ok {
		c.flush(ctx, f)
		return true, nil
	}
	p, ok := ctx.Value(probeKey{}).(*probe)
	if !ok {
		return false, nil
	}
	p.seen, p.dialect, p.tracker, p.refused, p.pool = true, c.dialect, c.tracker, c.refused, c.lender
	return true, nil
}

// TxOf returns the transaction in which tx runs its statements. tx may be a *sql.Tx, a sqlx.Tx, a
// bun.Tx, a *sql.Conn with an open transaction, or a *Tx of this package.
//
// With a pool opened with Connector, TxOf costs no round trip to the database, and the result is
// tracked. Otherwise tx counts as a transaction if it has Commit and Rollback methods. The result
// is then not tracked, TxOf costs two short queries (SELECT of a constant), and the poller
// publishes the events. Anything else, such as a pool or a connection without a transaction, is
// refused with an error wrapping core.ErrNoTransaction. So is a transaction that has ended. An
// error wrapping core.ErrTxAborted means that the transaction did not answer.
//
// If your code ignores errors of statements, call Err of the result before Commit: MySQL and
// MariaDB roll back the transaction of a deadlock's victim and report success for its COMMIT.
//
// A transaction whose BEGIN was sent as text is visible to neither database/sql nor TxOf.
func TxOf(ctx context.Context, tx Conn) (core.Tx, error) {
	if isNil(tx) {
		return nil, fmt.Errorf("%w: TxOf was given nil", core.ErrNoTransaction)
	}
	switch tx := tx.(type) {
	case core.Tx:
		return tx, nil
	case *sql.DB:
		return nil, fmt.Errorf("%w: TxOf was given a *sql.DB; begin a transaction and give it that",
			core.ErrNoTransaction)
	}
	var p probe
	if _, err := tx.ExecContext(context.WithValue(ctx, probeKey{}, &p), probeQuery); err != nil {
		return nil, probeError(err)
	}
	switch {
	case p.tracker != nil:
		found := &wrappedTx{conn: tx, pool: p.pool, dialect: p.dialect, tracker: p.tracker, refused: p.refused}
		if p.pool == nil {
			found.pool = poolOf(tx)
		}
		return found, nil
	case p.seen:
		return nil, fmt.Errorf("%w: the connection of this %T is not in one", core.ErrNoTransaction, tx)
	}
	if _, ok := tx.(interface {
		Commit() error
		Rollback() error
	}); !ok {
		return nil, fmt.Errorf("%w: %T has no Commit and Rollback", core.ErrNoTransaction, tx)
	}
	d, err := askDialect(ctx, tx)
	if err != nil {
		return nil, probeError(err)
	}
	return WrapTx(tx, d, nil), nil
}

func probeError(err error) error {
	if errors.Is(err, sql.ErrTxDone) {
		return errtext.Errorf("%w: %w", core.ErrNoTransaction, err)
	}
	return errtext.Errorf("%w: %w", core.ErrTxAborted, err)
}

func askDialect(ctx context.Context, tx Conn) (d core.Dialect, err error) {
	rows, err := tx.QueryContext(ctx, dialectQuery)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	if !rows.Next() {
		return "", errors.Join(errors.New("sqltx: the dialect of the database is not known"), rows.Err())
	}
	return d, rows.Scan(&d)
}

func isNil(v any) bool {
	if v == nil {
		return true
	}
	switch r := reflect.ValueOf(v); r.Kind() {
	case reflect.Pointer, reflect.Map, reflect.Func, reflect.Interface, reflect.Slice, reflect.Chan:
		return r.IsNil()
	default:
		return false
	}
}
