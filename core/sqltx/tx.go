package sqltx

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

// Tx is a tracked transaction: a core.Tx with the methods of *sql.Tx that run statements. Begin and
// the Transactor make it; the zero value cannot be used. Like *sql.Tx it may be used by several
// goroutines, one statement at a time.
//
// After some errors, such as a deadlock on MySQL, the server has rolled the transaction back. Every
// further statement and Commit then return an error wrapping core.ErrTxAborted. They are not sent,
// because they would run outside of the transaction.
type Tx struct {
	conn    TxConn
	pool    *sql.DB // nil: not known
	dialect core.Dialect
	tracker *Tracker
	// the connection is not tracked: show the tracker the statements of this Tx
	watch    bool
	ended    func() error // the error with which the context of the transaction has ended, else nil
	stop     func() bool  // stops listening for the end of the context
	giveBack func()       // gives the connection back when the transaction has ended
	ending   atomic.Bool  // COMMIT may have been sent, or the context has ended
	own      bool         // of Begin: a Transactor of this package may set savepoints in it
	depth    int          // number of their open savepoints
	refused  refusedCommits

	mu      sync.Mutex
	open    []*sql.Rows // rows that are not yet known to be read without an error
	guarded bool        // a guard is set, and is released before the next statement
}

// ExecContext runs a statement that returns no rows.
func (t *Tx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if err := t.Before(ctx, query); err != nil {
		return nil, err
	}
	res, err := t.conn.ExecContext(ctx, query, args...)
	t.observe(ctx, query, err)
	return res, err
}

// QueryContext runs a statement that returns rows.
func (t *Tx) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if err := t.Before(ctx, query); err != nil {
		return nil, err
	}
	rows, err := t.conn.QueryContext(ctx, query, args...)
	t.keep(ctx, query, rows, err)
	return rows, err
}

// QueryRowContext runs a statement that returns at most one row.
func (t *Tx) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	if err := t.Before(ctx, query); err != nil {
		return t.conn.QueryRowContext(ContextWithError(ctx, err), query, args...)
	}
	row := t.conn.QueryRowContext(ctx, query, args...)
	t.doubtRow(ctx, query, row)
	return row
}

// PrepareContext prepares a statement for use in the transaction.
func (t *Tx) PrepareContext(ctx context.Context, query string) (*sql.Stmt, error) {
	if err := t.Before(ctx, ""); err != nil {
		return nil, err
	}
	stmt, err := t.conn.PrepareContext(ctx, query)
	if err != nil {
		t.observe(ctx, "", err)
	} else {
		t.Unseen()
	}
	return stmt, err
}

// Commit commits, unless RefuseCommit was called. The error wraps core.ErrCommitUnknown if events
// depend on the transaction and the connection was lost after COMMIT was sent, or a statement ended
// the transaction. It wraps core.ErrTxAborted if the database had rolled back already, or would
// have answered COMMIT by ROLLBACK. It is sql.ErrTxDone if the transaction had already ended.
func (t *Tx) Commit() error {
	if cause := t.ended(); cause != nil {
		// database/sql rolls back now or soon. No COMMIT must be sent, so that the outcome is
		// certain.
		t.expire()
		return fmt.Errorf("%w: %w", sql.ErrTxDone, cause)
	}
	if cause := t.refused.standing(); cause != nil {
		gone, rollback := t.Err(), t.Rollback()
		if errors.Is(gone, core.ErrCommitUnknown) { // there was nothing left to roll back
			return fmt.Errorf("%w: and it was not to be committed: %w", gone, cause)
		}
		return notCommitted(cause, rollback)
	}
	if !t.watch {
		err := t.conn.Commit()
		t.leave()
		return err
	}
	ctx := context.Background()
	t.catchUp(ctx)
	if t.tracker.Doubt() != nil {
		t.tracker.Resolve(executor(t.run).ask(ctx, t.dialect))
	}
	if t.dialect == core.MySQL && stateInTx(ctx, t.conn) == stateNone {
		t.tracker.Observe("COMMIT", nil) // the server has ended it without an error
	}
	t.stop()
	if !t.ending.CompareAndSwap(false, true) {
		return sql.ErrTxDone
	}
	if _, gone := t.tracker.Before(""); gone != nil {
		rollback := t.conn.Rollback()
		t.tracker.RolledBack()
		return notCommitted(gone, rollback)
	}
	return t.tracker.Commit(t.conn.Commit)
}

// notCommitted returns the error of a COMMIT that was not sent.
func notCommitted(cause, rollback error) error {
	if rollback != nil && !errors.Is(rollback, sql.ErrTxDone) {
		return fmt.Errorf("sqltx: not committed: %w; roll back: %w", cause, rollback)
	}
	return fmt.Errorf("sqltx: rolled back instead of committed: %w", cause)
}

func (t *Tx) expire() {
	if !t.watch {
		_ = t.conn.Rollback()
		t.leave()
	} else if t.ending.CompareAndSwap(false, true) {
		_ = t.conn.Rollback()
		t.tracker.RolledBack()
	}
}

// leave gives the connection back.
func (t *Tx) leave() {
	if t.giveBack != nil {
		t.stop()
		t.giveBack()
	}
}

// Rollback rolls back. After the end of the transaction it returns sql.ErrTxDone, so it can be
// deferred.
func (t *Tx) Rollback() error {
	err := t.conn.Rollback()
	if !t.watch {
		t.leave()
		return err
	}
	t.stop()
	if t.ending.CompareAndSwap(false, true) {
		t.tracker.RolledBack()
	}
	return err
}

// Exec implements core.Tx.
func (t *Tx) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	return sqlkit.On{Conn: t}.Exec(ctx, query, args...)
}

// Query implements core.Tx.
func (t *Tx) Query(ctx context.Context, query string, args ...any) (core.Rows, error) {
	return sqlkit.On{Conn: t}.Query(ctx, query, args...)
}

// Dialect implements core.Tx.
func (t *Tx) Dialect() core.Dialect { return t.dialect }

// Pool returns the pool that the transaction was begun on, nil when that is not known.
func (t *Tx) Pool() *sql.DB { return t.pool }

// Tracked implements core.Tx: it is true.
func (t *Tx) Tracked() bool { return true }

// OnOutcome implements core.Tx.
func (t *Tx) OnOutcome(fn func(core.Outcome)) { t.tracker.OnOutcome(fn) }

// OnRollback is as Tracker.OnRollback.
func (t *Tx) OnRollback(key any, fn func(to core.RecorderMark)) { t.tracker.OnRollback(key, fn) }

// Err implements core.Tx.
func (t *Tx) Err() error {
	t.catchUp(context.Background())
	return t.tracker.Err()
}

// Conn returns the transaction below, as Follow got it. For authors of adapters: t does not see
// statements that are run through it.
func (t *Tx) Conn() TxConn { return t.conn }

// Watched reports whether t must be shown the statements that do not pass through it, because the
// connection itself is not tracked. For authors of adapters.
func (t *Tx) Watched() bool { return t.watch }

// Before is called before a statement that does not pass through t; Observe is called after it. Its
// error wraps core.ErrTxAborted: the server has rolled back, so do not run the statement. For
// authors of adapters. It does nothing if the connection itself is tracked.
func (t *Tx) Before(ctx context.Context, query string) error {
	if !t.watch {
		return nil
	}
	t.catchUp(ctx)
	opaque, err := t.tracker.Before(query)
	if err != nil || !opaque {
		return err
	}
	if err := executor(t.run).setGuard(ctx); err != nil {
		t.tracker.Observe("", err)
		return err
	}
	t.mu.Lock()
	t.guarded = true
	t.mu.Unlock()
	return nil
}

// Observe shows t a statement of the transaction that did not pass through it, with its rows, if
// any, and its error. An error that comes neither from the database nor from its driver, but from a
// hook for example, is ignored. For authors of adapters. Observe does nothing if the connection
// itself is tracked.
func (t *Tx) Observe(query string, rows *sql.Rows, err error) {
	t.keep(context.Background(), query, rows, err)
}

// ObserveRow is Observe for QueryRowContext.
func (t *Tx) ObserveRow(query string, row *sql.Row) { t.doubtRow(context.Background(), query, row) }

func (t *Tx) keep(ctx context.Context, query string, rows *sql.Rows, err error) {
	if err != nil || rows == nil || !t.watch {
		t.observe(ctx, query, err)
		return
	}
	t.mu.Lock()
	t.open = append(t.open, rows)
	guarded := t.guarded // until the rows have been read
	t.mu.Unlock()
	if !guarded {
		t.tracker.Observe(query, nil)
	}
}

// errUnseen: only the application sees the error that Scan of a row returns, or the error of a
// statement that it prepared.
var errUnseen = errors.New("sqltx: a statement was run whose error only the application has seen")

// doubtRow makes the Tx ask the database whether reading a row failed, before the next statement or
// before COMMIT.
func (t *Tx) doubtRow(ctx context.Context, query string, row *sql.Row) {
	if !t.watch {
		return
	}
	err := row.Err()
	if t.observe(ctx, query, err); err == nil {
		t.tracker.Observe("", errUnseen)
	}
}

// Unseen makes the outcome unknown, unless the transaction is rolled back, because t could not see
// something that happened in it. Before the next statement, or before COMMIT, the database is asked
// whether it still has the transaction. For authors of adapters. Unseen does nothing if the
// connection itself is tracked.
func (t *Tx) Unseen() {
	if t.watch {
		t.tracker.Unseen()
		t.tracker.Observe("", errUnseen)
	}
}

// observe shows the tracker a statement that has ended.
func (t *Tx) observe(ctx context.Context, query string, err error) {
	if !t.watch {
		return
	}
	t.mu.Lock()
	guarded := t.guarded
	t.guarded = false
	t.mu.Unlock()
	if guarded {
		executor(t.run).releaseGuard(ctx, t.tracker, err)
	} else {
		t.tracker.Observe(query, err)
	}
}

// run runs a statement of this package.
func (t *Tx) run(ctx context.Context, query string) error {
	_, err := t.conn.ExecContext(ctx, query)
	return err
}

// catchUp looks for errors that came while rows were read, and finds out whether the transaction
// survived the latest statement.
func (t *Tx) catchUp(ctx context.Context) {
	if !t.watch {
		return
	}
	t.readErrors()
	t.mu.Lock()
	guarded := t.guarded
	t.mu.Unlock()
	if guarded {
		t.observe(ctx, "", nil)
	}
	// PostgreSQL itself refuses further statements, and is asked before COMMIT
	if t.dialect != core.Postgres && t.tracker.Doubt() != nil {
		t.tracker.Resolve(executor(t.run).ask(ctx, t.dialect))
	}
}

// rowsAreClosed is the error of Rows.Columns for closed rows without an error. For rows with an
// error, Rows.Columns returns the error that closed them. Rows.Err would race with Rows.Next of a
// reader on another goroutine, because Next writes the error after it has closed the rows.
const rowsAreClosed = "sql: Rows are closed"

func (t *Tx) readErrors() {
	t.mu.Lock()
	defer t.mu.Unlock()
	kept := t.open[:0]
	for _, rows := range t.open {
		if _, err := rows.Columns(); err == nil {
			kept = append(kept, rows) // still open
		} else if err.Error() != rowsAreClosed {
			t.tracker.Observe("", err) // an error of the context too: it may hide another one
		}
	}
	clear(t.open[len(kept):])
	t.open = kept
}

// refusedCommits are the reasons why a transaction must not commit. The zero value has none. It is
// safe for use by several goroutines.
type refusedCommits struct {
	mu  sync.Mutex
	all []*refusedCommit
}

type refusedCommit struct{ err error }

// add adds a reason. lift removes it, as a rollback to an earlier savepoint does by onOutcome.
func (v *refusedCommits) add(err error, onOutcome func(func(core.Outcome))) (lift func()) {
	one := &refusedCommit{err: err}
	v.mu.Lock()
	v.all = append(v.all, one)
	v.mu.Unlock()
	lift = func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.all = slices.DeleteFunc(v.all, func(r *refusedCommit) bool { return r == one })
	}
	onOutcome(func(o core.Outcome) {
		if o == core.RolledBack {
			lift()
		}
	})
	return lift
}

// standing returns the first reason that was not removed, else nil.
func (v *refusedCommits) standing() error {
	if v == nil {
		return nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.all) == 0 {
		return nil
	}
	return v.all[0].err
}

// RefuseCommit makes Commit roll back and return an error wrapping err, unless the changes so far
// are rolled back to a savepoint before, or lift is called. It is for adapters: the events of a
// statement may turn out not to be writable, and the program may ignore the error of the statement.
func (t *Tx) RefuseCommit(err error) (lift func()) { return t.refused.add(err, t.OnOutcome) }

// ContextWithError returns a context that has ended with err. Give it to a method of database/sql
// that cannot return an error itself, such as Tx.StmtContext: its result then has the error. For
// authors of adapters.
func ContextWithError(ctx context.Context, err error) context.Context { return endedContext{ctx, err} }

type endedContext struct {
	context.Context //nolint:containedctx // endedContext is itself a context
	err             error
}

var over = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

func (r endedContext) Done() <-chan struct{} { return over }
func (r endedContext) Err() error            { return r.err }
