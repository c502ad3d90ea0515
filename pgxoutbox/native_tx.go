package pgxoutbox

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

// nativeTx is a transaction of a Pool. It shows its tracker the statements that can touch the
// transaction. The effect of other statements shows on the connection: PostgreSQL sends the status
// of the transaction after each statement.
type nativeTx struct {
	pool    *pgxpool.Pool
	lent    *pgxpool.Conn
	conn    *pgx.Conn // of lent
	inner   pgx.Tx
	tracker *sqltx.Tracker
	own     nativeCore // the same transaction as a core.Tx

	closed     bool
	unseen     bool  // something went past the transaction
	refused    error // why COMMIT must not be sent
	savepoints int64 // how many were set, for their names
	depth      int   // open savepoints of RunInTx
}

var _ pgx.Tx = (*nativeTx)(nil)

// lasting returns a context for the end of a transaction, which the end of ctx must not prevent.
func lasting(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx.Err() == nil {
		return ctx, func() {}
	}
	return context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
}

// status returns the status of the transaction after the latest statement.
func (t *nativeTx) status() byte { return t.conn.PgConn().TxStatus() }

// look reports to the tracker if the transaction has ended behind its back.
func (t *nativeTx) look() {
	if !t.closed && !t.conn.IsClosed() && t.status() == statusNone {
		t.tracker.Observe("COMMIT", nil)
		t.tracker.Resolve(false)
	}
}

// Commit implements pgx.Tx.
func (t *nativeTx) Commit(ctx context.Context) error {
	if t.closed {
		return pgx.ErrTxClosed
	}
	if err := t.cannotCommit(ctx); err != nil {
		_ = t.Rollback(ctx) // if that fails, the connection is closed
		return err
	}
	t.look()
	if t.status() == statusOpen {
		t.tracker.Resolve(true)
	}
	t.closed = true
	defer t.lent.Release()
	if _, gone := t.tracker.Before(""); gone != nil {
		_ = t.inner.Rollback(ctx) // there is nothing left to roll back; this closes inner
		t.tracker.RolledBack()
		return gone
	}
	err := t.inner.Commit(ctx)
	return t.tracker.End(t.judge(err), err)
}

// judge returns the outcome of a COMMIT that was sent. pgx returns nil for any tag but ROLLBACK,
// and the only other tag that COMMIT has is its own.
func (t *nativeTx) judge(err error) core.Outcome {
	switch {
	case err == nil:
		return core.Committed
	case errors.Is(err, pgx.ErrTxCommitRollback), refusedBy(err):
		return core.RolledBack
	}
	return core.Unknown
}

// cannotCommit returns an error if COMMIT must not be sent.
func (t *nativeTx) cannotCommit(ctx context.Context) error {
	switch {
	case t.refused != nil:
		return fmt.Errorf("pgxoutbox: rolled back instead of committed: %w", t.refused)
	case t.conn.IsClosed():
		return fmt.Errorf("pgxoutbox: not committed: %w", errConnClosed)
	case t.conn.PgConn().IsBusy():
		return errBusy
	case ctx.Err() != nil:
		return ended(ctx, nil)
	}
	return nil
}

var errConnClosed = errors.New("conn closed") // in the words of pgx

// Rollback implements pgx.Tx.
func (t *nativeTx) Rollback(ctx context.Context) error {
	if t.closed {
		return pgx.ErrTxClosed
	}
	t.look()
	if t.unseen { // perhaps COMMIT AND CHAIN
		t.tracker.Observe("COMMIT", nil)
	}
	t.closed = true
	defer t.lent.Release()
	ctx, cancel := lasting(ctx)
	defer cancel()
	err := t.inner.Rollback(ctx) // on failure it closes the connection, which rolls back too
	t.tracker.RolledBack()
	return err
}

// refuse makes Commit roll back and return err.
func (t *nativeTx) refuse(err error) {
	if t.refused == nil {
		t.refused = err
	}
}

// Begin implements pgx.Tx: it sets a savepoint.
func (t *nativeTx) Begin(ctx context.Context) (pgx.Tx, error) {
	if t.closed {
		return nil, pgx.ErrTxClosed
	}
	t.savepoints++
	sp := &nativeSavepoint{nativeTx: t, name: "sp_" + strconv.FormatInt(t.savepoints, 10)}
	if _, err := t.Exec(ctx, "savepoint "+sp.name); err != nil {
		return nil, err
	}
	return sp, nil
}

// Exec implements pgx.Tx.
func (t *nativeTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if sql == probeQuery && t.answer(ctx) {
		return pgconn.NewCommandTag("SELECT 1"), nil
	}
	if t.closed || t.tracker.Harmless(sql) {
		return t.inner.Exec(ctx, sql, args...)
	}
	done, err := t.watch(ctx, sql)
	if err != nil {
		return pgconn.CommandTag{}, err
	}
	tag, err := t.inner.Exec(ctx, sql, args...)
	done(tag, err)
	return tag, err
}

// Query implements pgx.Tx.
func (t *nativeTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if t.closed || t.tracker.Harmless(sql) {
		return t.inner.Query(ctx, sql, args...)
	}
	done, err := t.watch(ctx, sql)
	if err != nil {
		return errRows{err}, err
	}
	rows, err := t.inner.Query(ctx, sql, args...)
	if err != nil {
		done(pgconn.CommandTag{}, err)
		return rows, err
	}
	return &watchedRows{Rows: rows, done: done}, nil
}

// QueryRow implements pgx.Tx.
func (t *nativeTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if t.closed || t.tracker.Harmless(sql) {
		return t.inner.QueryRow(ctx, sql, args...)
	}
	rows, _ := t.Query(ctx, sql, args...)
	return watchedRow{rows}
}

// Prepare implements pgx.Tx.
func (t *nativeTx) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	return t.inner.Prepare(ctx, name, sql)
}

// CopyFrom implements pgx.Tx.
func (t *nativeTx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, rows pgx.CopyFromSource,
) (int64, error) {
	return t.inner.CopyFrom(ctx, table, columns, rows)
}

// LargeObjects implements pgx.Tx.
func (t *nativeTx) LargeObjects() pgx.LargeObjects { return t.inner.LargeObjects() }

// Conn implements pgx.Tx. Statements on the connection are not observed, so from now on the outcome
// of the transaction counts as unknown.
func (t *nativeTx) Conn() *pgx.Conn {
	t.pass()
	return t.conn
}

// pass notes that something goes past the transaction.
func (t *nativeTx) pass() {
	t.unseen = true
	t.tracker.Unseen()
}

// watch is called before a statement that may touch the transaction, done after it.
func (t *nativeTx) watch(ctx context.Context, sql string) (done func(tag pgconn.CommandTag, err error), err error) {
	opaque, err := t.tracker.Before(sql)
	switch {
	case err != nil:
		return nil, err
	case !opaque:
		return func(_ pgconn.CommandTag, err error) { t.tracker.Observe(sql, err) }, nil
	case isName(sql): // of a prepared statement, which is one alone
		return func(tag pgconn.CommandTag, err error) {
			if err == nil && touches(tag) {
				t.tracker.Observe("COMMIT", nil) // or a savepoint: nothing is certain any more
			}
		}, nil
	}
	release, err := t.tracker.Guard(ctx, func(ctx context.Context, query string) error {
		_, err := t.inner.Exec(ctx, query)
		return err
	})
	if err != nil {
		return nil, err
	}
	return func(_ pgconn.CommandTag, err error) { release(err) }, nil
}

// isName reports whether a text can be the name of a prepared statement, and nothing with a
// semicolon or several words in it.
func isName(sql string) bool {
	for i := range len(sql) {
		switch c := sql[i]; {
		case c|0x20 >= 'a' && c|0x20 <= 'z', c >= '0' && c <= '9', c == '_', c == '-', c == '.':
		default:
			return false
		}
	}
	return sql != ""
}

// touches reports whether a statement with this tag may have ended the transaction, or set,
// released or rolled back to a savepoint.
func touches(tag pgconn.CommandTag) bool {
	word, _, _ := strings.Cut(tag.String(), " ")
	switch word {
	case "SELECT", "INSERT", "UPDATE", "DELETE", "MERGE", "FETCH", "MOVE", "COPY", "SET", "RESET", "SHOW", "LOCK",
		"DO", "CALL", "NOTIFY":
		return false
	}
	return true
}
