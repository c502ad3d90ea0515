package sqloutbox

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlerr"
)

// Begin begins a tracked transaction on a pool that was not opened with Connector. Give the result to Publish; run every
// statement of the transaction through it, because what goes around it is not seen. A nil opts means the defaults of the
// driver; an empty d is told from the driver as Connector does it. As with sql.DB.BeginTx, the transaction is rolled back
// when ctx ends.
func Begin(ctx context.Context, db *sql.DB, opts *sql.TxOptions, d core.Dialect) (*Tx, error) {
	if db == nil {
		return nil, errors.New("outbox: Begin was given a nil *sql.DB")
	}
	if d == "" {
		var err error
		if d, err = dialectOfDriver(db.Driver()); err != nil {
			return nil, err
		}
	}
	return Follow(ctx, d, func(ctx context.Context) (TxConn, error) {
		tx, err := db.BeginTx(ctx, opts)
		if err != nil {
			return nil, err
		}
		return tx, nil
	})
}

// TxConn is what Follow needs of a transaction. *sql.Tx has it.
type TxConn interface {
	Conn
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	PrepareContext(ctx context.Context, query string) (*sql.Stmt, error)
	Commit() error
	Rollback() error
}

// Follow is Begin for authors of adapters whose transactions come from somewhere else: begin must begin a new transaction with the
// context it is given. When the pool below was opened with Connector, its connection does the tracking, else the result.
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
		return nil, errors.New("outbox: Follow: begin returned no transaction")
	}
	t := &Tx{conn: conn, dialect: d, tracker: p.tracker, ended: func() error { return context.Cause(ctx) }}
	if !p.seen {
		t.tracker, t.watch = core.NewTracker(d), true
		// Nobody need call Rollback once ctx has ended, but what waits for the outcome must hear of it.
		t.stop = context.AfterFunc(ctx, t.expire)
	}
	return t, nil
}

// Tx is a tracked transaction: a core.Tx, with the methods of *sql.Tx that run statements. It is made by Begin and
// by the Transactor; the zero value is of no use. Like *sql.Tx it may be used by several goroutines, one statement at a time.
type Tx struct {
	conn    TxConn
	dialect core.Dialect
	tracker *core.Tracker
	watch   bool         // the connection does not track: show the tracker what passes through here
	ended   func() error // why the context of the transaction has ended, which rolls it back, else nil
	stop    func() bool  // no longer listen for that
	ending  atomic.Bool  // COMMIT may have been sent, or the context has ended
	owner   *transactor
	depth   int // of the transactor's savepoints

	mu   sync.Mutex
	open []*sql.Rows // handed out and not yet known to have ended well
}

// ExecContext runs a statement that returns no rows.
func (t *Tx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	t.settleRows()
	res, err := t.conn.ExecContext(ctx, query, args...)
	t.observe(query, err)
	return res, err
}

// QueryContext runs a statement that returns rows.
func (t *Tx) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	t.settleRows()
	rows, err := t.conn.QueryContext(ctx, query, args...)
	t.observe(query, err)
	t.keep(rows, err)
	return rows, err
}

// QueryRowContext runs a statement that returns at most one row. On a pool without Connector a statement other than a plain SELECT
// leaves the events of the transaction to the poller on MySQL, MariaDB and SQLite, because nobody else sees the error that
// Scan may return; QueryContext does not.
func (t *Tx) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	t.settleRows()
	row := t.conn.QueryRowContext(ctx, query, args...)
	t.observe(query, row.Err())
	t.doubtRow(query)
	return row
}

// PrepareContext prepares a statement for use in the transaction. On a pool without Connector its executions cannot be seen, so
// the events of the transaction are left to the poller.
func (t *Tx) PrepareContext(ctx context.Context, query string) (*sql.Stmt, error) {
	t.settleRows()
	stmt, err := t.conn.PrepareContext(ctx, query)
	if err != nil {
		t.observe("", err)
	} else {
		t.Taint()
	}
	return stmt, err
}

// Commit commits. When the connection was lost after COMMIT was sent and events depend on it, the error wraps
// core.ErrCommitUnknown; an error wrapping sql.ErrTxDone means that the transaction had already ended.
func (t *Tx) Commit() error {
	if !t.watch {
		return t.conn.Commit()
	}
	t.settleRows()
	if cause := t.ended(); cause != nil {
		// database/sql is rolling back, or is about to: make sure that no COMMIT is sent, so that nothing is in doubt.
		t.expire()
		return fmt.Errorf("%w: %w", sql.ErrTxDone, cause)
	}
	t.stop()
	if !t.ending.CompareAndSwap(false, true) {
		return sql.ErrTxDone
	}
	return t.tracker.Commit(t.conn.Commit)
}

func (t *Tx) expire() {
	if t.ending.CompareAndSwap(false, true) {
		_ = t.conn.Rollback()
		t.tracker.RolledBack()
	}
}

// Rollback rolls back. After the end of the transaction it returns sql.ErrTxDone, so it can be deferred.
func (t *Tx) Rollback() error {
	err := t.conn.Rollback()
	if t.watch {
		t.stop()
		if t.ending.CompareAndSwap(false, true) {
			t.tracker.RolledBack()
		}
	}
	return err
}

// Exec implements core.Tx.
func (t *Tx) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	return execRows(ctx, t, query, args)
}

// Query implements core.Tx.
func (t *Tx) Query(ctx context.Context, query string, args ...any) (core.Rows, error) {
	return queryRows(ctx, t, query, args)
}

// Dialect implements core.Tx.
func (t *Tx) Dialect() core.Dialect { return t.dialect }

// Tracked implements core.Tx: it is true.
func (t *Tx) Tracked() bool { return true }

// OnOutcome implements core.Tx.
func (t *Tx) OnOutcome(fn func(core.Outcome)) { t.tracker.OnOutcome(fn) }

// Err implements core.Tx.
func (t *Tx) Err() error {
	t.settleRows()
	return t.tracker.Err()
}

// Conn returns the transaction below, as Follow was given it. For authors of adapters: t does not see what is run through it.
func (t *Tx) Conn() TxConn { return t.conn }

// Observe shows t a statement of the transaction that did not pass through it, with its rows, if any, and its error. An error that
// comes neither from the database nor from its driver (of a hook, say) makes the outcome unknown, but does not end the use of
// the transaction. For authors of adapters; Observe does nothing when the connection itself is tracked.
func (t *Tx) Observe(query string, rows *sql.Rows, err error) {
	t.settleRows()
	if err != nil && t.dialect != core.Postgres && !fromDatabase(err) {
		t.Taint()
		return
	}
	t.observe(query, err)
	t.keep(rows, err)
}

// ObserveRow is Observe for QueryRowContext. What QueryRowContext says about the error of Scan applies.
func (t *Tx) ObserveRow(query string, row *sql.Row) {
	t.Observe(query, nil, row.Err())
	t.doubtRow(query)
}

func (t *Tx) keep(rows *sql.Rows, err error) {
	if err != nil || rows == nil || !t.watch {
		return
	}
	t.mu.Lock()
	t.open = append(t.open, rows)
	t.mu.Unlock()
}

func (t *Tx) doubtRow(query string) {
	if t.dialect != core.Postgres && !plainSelect(query) {
		t.Taint()
	}
}

func fromDatabase(err error) bool {
	return sqlerr.State(err) != "" || sqlerr.MySQL(err) != 0 || sqlerr.SQLite(err) != 0 || errors.Is(err, driver.ErrBadConn)
}

// Taint makes the outcome unknown, unless the transaction is rolled back: something happened in it that t could not see. For
// authors of adapters; it does nothing when the connection itself is tracked.
func (t *Tx) Taint() {
	if t.watch {
		t.tracker.Taint()
	}
}

func (t *Tx) observe(query string, err error) {
	if t.watch {
		t.tracker.Observe(query, err)
	}
}

// settleRows looks for errors that came while rows were read.
func (t *Tx) settleRows() {
	if !t.watch {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	kept := t.open[:0]
	for _, rows := range t.open {
		if _, closed := rows.Columns(); closed == nil {
			kept = append(kept, rows) // an error closes them; until then somebody may be reading, and Err would race with that
			continue
		}
		err := rows.Err()
		switch {
		case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
			t.tracker.Taint() // may also be the end of a context after the rows had been read
		case err != nil:
			t.tracker.Observe("", err)
		}
	}
	clear(t.open[len(kept):])
	t.open = kept
}

// plainSelect reports whether query only reads and takes no locks, so that its failure can roll nothing back.
func plainSelect(query string) bool {
	q := strings.ToUpper(strings.TrimSpace(query))
	if !strings.HasPrefix(q, "SELECT") {
		return false
	}
	for _, lock := range []string{"FOR UPDATE", "FOR SHARE", "LOCK IN", " INTO "} {
		if strings.Contains(q, lock) {
			return false
		}
	}
	return true
}
