package sqltx

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"sync"

	"github.com/ormoutbox/ormoutbox/core"
)

// Begin begins a tracked transaction on a pool, opened with Connector or not. Give the result to
// Publish, and run every statement of the transaction through it. A nil opts means the defaults of
// the driver. If d is empty, it comes from the driver, as for Connector. As with sql.DB.BeginTx,
// the transaction is rolled back when ctx ends.
//
// The result sees everything that Connector sees: prepared statements, errors that come with rows,
// and rollbacks by the server; see Connector.
func Begin(ctx context.Context, db *sql.DB, opts *sql.TxOptions, d core.Dialect) (*Tx, error) {
	if db == nil {
		return nil, errors.New("sqltx: Begin was given a nil *sql.DB")
	}
	d, err := dialectFor(db, d)
	if err != nil {
		return nil, err
	}
	var t *Tx
	err = RetryBegin(db, func() (bool, error) {
		t, err = beginOn(ctx, db, opts, d)
		return t != nil, err
	})
	return t, err
}

// RetryBegin calls try again as long as it could not begin a transaction because its idle
// connection had died (driver.ErrBadConn). It stops at the latest when every idle connection of db
// has had its turn. It is for authors of adapters: sql.DB.BeginTx does the same, but a *sql.Conn,
// such as TrackConn's, does not. began is true if a transaction was begun, even if it failed later.
func RetryBegin(db *sql.DB, try func() (began bool, err error)) error {
	// database/sql ends with a new connection; here all idle ones are tried first
	for tries := 3 + db.Stats().Idle; ; tries-- {
		began, err := try()
		if err == nil || began || tries <= 1 || !errors.Is(err, driver.ErrBadConn) {
			return err
		}
	}
}

// dialectFor returns d, or the dialect of the driver if d is empty.
func dialectFor(db *sql.DB, d core.Dialect) (core.Dialect, error) {
	if d == "" {
		return dialectOf(db.Driver())
	}
	return d, checkDialect(d)
}

// beginOn begins the transaction on a tracked connection of its own.
func beginOn(ctx context.Context, db *sql.DB, opts *sql.TxOptions, d core.Dialect) (*Tx, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	tracking, err := TrackConn(ctx, conn, d)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	var p probe
	tx, err := tracking.BeginTx(context.WithValue(ctx, probeKey{}, &p), opts)
	if err != nil {
		_ = tracking.Close()
		return nil, err
	}
	t := &Tx{
		conn: tx, pool: db, dialect: p.dialect, tracker: p.tracker, own: true,
		ended: func() error { return context.Cause(ctx) },
	}
	t.giveBack = sync.OnceFunc(func() { _ = tracking.Close() }) // waits for the end of the transaction
	t.stop = context.AfterFunc(ctx, t.giveBack)
	return t, nil
}

// TxConn has the methods of a transaction that Follow needs. *sql.Tx has them.
type TxConn interface {
	Conn
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	PrepareContext(ctx context.Context, query string) (*sql.Stmt, error)
	Commit() error
	Rollback() error
}

// Follow is Begin for authors of adapters whose transactions do not come from a *sql.DB. begin must
// begin a new transaction with the context it is given. pool is the pool of the transaction, nil if
// it is not known. If the pool below was opened with Connector, its connection tracks the
// transaction, else the result does.
func Follow(
	ctx context.Context, pool *sql.DB, d core.Dialect, begin func(context.Context) (TxConn, error),
) (*Tx, error) {
	if err := checkDialect(d); err != nil {
		return nil, err
	}
	var p probe
	conn, err := begin(context.WithValue(ctx, probeKey{}, &p))
	if err != nil {
		return nil, err
	}
	if isNil(conn) {
		return nil, errors.New("sqltx: Follow: begin returned no transaction")
	}
	t := &Tx{conn: conn, pool: pool, dialect: d, tracker: p.tracker, ended: func() error { return context.Cause(ctx) }}
	if !p.seen {
		t.tracker, t.watch = NewTracker(d), true
		if d == core.MySQL {
			watchEnd(ctx, conn)
		}
		// When ctx ends, database/sql rolls back, but does not report it.
		t.stop = context.AfterFunc(ctx, t.expire)
	}
	return t, nil
}
