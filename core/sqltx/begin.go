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
// the driver; an empty d is told from the driver as Connector does it. As with sql.DB.BeginTx, the
// transaction is rolled back when ctx ends.
//
// What Connector sees, the result sees: prepared statements, errors that come with rows, and what
// the server has rolled back behind the application; see Connector.
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

// RetryBegin calls try again as long as it could begin no transaction because its connection had
// died while nobody used it (driver.ErrBadConn), at most until the idle ones of db have had their
// turn. For authors of adapters: sql.DB.BeginTx does so by itself, and a *sql.Conn, such as that of
// TrackConn, does not. began says that a transaction was begun, whatever became of it.
func RetryBegin(db *sql.DB, try func() (began bool, err error)) error {
	// database/sql ends with a new connection; here all idle ones come first
	for tries := 3 + db.Stats().Idle; ; tries-- {
		began, err := try()
		if err == nil || began || tries <= 1 || !errors.Is(err, driver.ErrBadConn) {
			return err
		}
	}
}

// dialectFor returns d, or what the driver says when it is empty.
func dialectFor(db *sql.DB, d core.Dialect) (core.Dialect, error) {
	if d == "" {
		return dialectOf(db.Driver())
	}
	return d, checkDialect(d)
}

// beginOn begins on a connection of its own, which tracks.
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
	t := &Tx{conn: tx, dialect: p.dialect, tracker: p.tracker, ended: func() error { return context.Cause(ctx) }}
	t.giveBack = sync.OnceFunc(func() { _ = tracking.Close() }) // waits for the end of the transaction
	t.stop = context.AfterFunc(ctx, t.giveBack)
	return t, nil
}

// TxConn is what Follow needs of a transaction. *sql.Tx has it.
type TxConn interface {
	Conn
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	PrepareContext(ctx context.Context, query string) (*sql.Stmt, error)
	Commit() error
	Rollback() error
}

// Follow is Begin for authors of adapters whose transactions come from somewhere else: begin must
// begin a new transaction with the context it is given. When the pool below was opened with
// Connector, its connection does the tracking, else the result.
func Follow(ctx context.Context, d core.Dialect, begin func(context.Context) (TxConn, error)) (*Tx, error) {
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
	t := &Tx{conn: conn, dialect: d, tracker: p.tracker, ended: func() error { return context.Cause(ctx) }}
	if !p.seen {
		t.tracker, t.watch = NewTracker(d), true
		// Nobody need call Rollback once ctx has ended, but what waits for the outcome must hear of
		// it.
		t.stop = context.AfterFunc(ctx, t.expire)
	}
	return t, nil
}
