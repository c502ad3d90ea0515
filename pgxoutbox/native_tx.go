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

	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

// nativeTx is a transaction of a Pool. Its session begins and ends it, and keeps its events until
// COMMIT. It shows its tracker the statements that can touch the transaction. The effect of other
// statements shows on the connection: PostgreSQL sends the status of the transaction after each
// statement.
type nativeTx struct {
	pool    *pgxpool.Pool
	lent    *pgxpool.Conn
	conn    *pgx.Conn // of lent
	session *session  // of conn
	tracker *sqltx.Tracker
	own     nativeCore // the same transaction as a core.Tx

	closed     bool
	unseen     bool  // something went past the transaction
	refused    error // why COMMIT must not be sent
	savepoints int64 // how many were set, for their names
	depth      int   // open savepoints of RunInTx
}

var _ pgx.Tx = (*nativeTx)(nil)

// lasting returns a context for the end of a savepoint, which the end of ctx must not prevent.
func lasting(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx.Err() == nil {
		return ctx, func() {}
	}
	return context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
}

// look reports to the tracker if the transaction has ended behind its back.
func (t *nativeTx) look() {
	if !t.closed && t.session.status() == statusNone {
		t.tracker.Observe("COMMIT", nil)
	}
}

// release gives the connection back. The transaction has ended.
func (t *nativeTx) release() {
	t.session.leave()
	t.lent.Release()
}

// Commit implements pgx.Tx.
func (t *nativeTx) Commit(ctx context.Context) error {
	if t.closed {
		return pgx.ErrTxClosed
	}
	if t.refused != nil {
		_ = t.Rollback(ctx) // if that fails, the connection is closed
		return fmt.Errorf("pgxoutbox: rolled back instead of committed: %w", t.refused)
	}
	t.look()
	if t.session.status() == statusOpen {
		t.tracker.Resolve(true)
	}
	t.closed = true
	defer t.release()
	if _, gone := t.tracker.Before(""); gone != nil {
		_ = t.session.rollback(ctx) // there is nothing left to roll back
		t.tracker.RolledBack()
		return gone
	}
	return t.tracker.End(t.session.commit(ctx))
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
	defer t.release()
	err := t.session.rollback(ctx) // on failure it closes the connection, which rolls back too
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
func (t *nativeTx) Exec(ctx context.Context, sql string, args ...any) (tag pgconn.CommandTag, err error) {
	if sql == probeQuery && t.answer(ctx) {
		return pgconn.NewCommandTag("SELECT 1"), nil
	}
	taken, done, err := t.before(ctx, sql, args)
	if taken || err != nil {
		return tag, err
	}
	tag, err = t.conn.Exec(ctx, sql, args...)
	if done != nil {
		done(tag, err)
	}
	return tag, err
}

// Query implements pgx.Tx.
func (t *nativeTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	taken, done, err := t.before(ctx, sql, args)
	if taken || err != nil {
		return errRows{err}, err
	}
	rows, err := t.conn.Query(ctx, sql, args...)
	return watched(rows, err, done), err
}

// QueryRow implements pgx.Tx.
func (t *nativeTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	taken, done, err := t.before(ctx, sql, args)
	switch {
	case taken, err != nil:
		return watchedRow{errRows{err}}
	case done == nil:
		return t.conn.QueryRow(ctx, sql, args...)
	}
	rows, err := t.conn.Query(ctx, sql, args...)
	return watchedRow{watched(rows, err, done)}
}

// Prepare implements pgx.Tx.
func (t *nativeTx) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	if t.closed {
		return nil, pgx.ErrTxClosed
	}
	if err := t.session.beforePrepare(ctx); err != nil {
		return nil, err
	}
	return t.conn.Prepare(ctx, name, sql)
}

// CopyFrom implements pgx.Tx.
func (t *nativeTx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, rows pgx.CopyFromSource,
) (int64, error) {
	if t.closed {
		return 0, pgx.ErrTxClosed
	}
	if err := t.session.beforeLook(ctx, "CopyFrom"); err != nil {
		return 0, err
	}
	return t.conn.CopyFrom(ctx, table, columns, rows)
}

// LargeObjects implements pgx.Tx. Its statements go past the session.
func (t *nativeTx) LargeObjects() pgx.LargeObjects {
	if t.closed {
		return new(session).inner(context.Background()).LargeObjects()
	}
	_, _ = t.session.lend(context.Background()) // an error aborts the transaction or closes the connection
	return t.session.inner(context.Background()).LargeObjects()
}

// Conn implements pgx.Tx. Statements on the connection are not observed, so from now on the outcome
// of the transaction counts as unknown.
func (t *nativeTx) Conn() *pgx.Conn {
	if !t.closed {
		t.pass()
		_, _ = t.session.lend(context.Background()) // an error aborts the transaction or closes the connection
	}
	return t.conn
}

// pass notes that something goes past the transaction.
func (t *nativeTx) pass() {
	t.unseen = true
	t.tracker.Unseen()
}

// before is called before each statement. taken: it inserts events, and is sent later. done is
// called after the statement; nil: the statement cannot touch the transaction.
func (t *nativeTx) before(ctx context.Context, sql string, args []any) (
	taken bool, done func(tag pgconn.CommandTag, err error), err error,
) {
	if t.closed {
		return false, nil, pgx.ErrTxClosed
	}
	harmless, name := t.tracker.Harmless(sql), isName(sql)
	if !harmless || name {
		if done, err = t.watch(ctx, sql, harmless && name); err != nil {
			return false, nil, err
		}
	}
	taken, err = t.show(ctx, sql, args)
	if err != nil && done != nil {
		done(pgconn.CommandTag{}, err)
	}
	return taken, done, err
}

// show shows a statement to the session.
func (t *nativeTx) show(ctx context.Context, sql string, args []any) (taken bool, err error) {
	if isName(sql) { // perhaps of a prepared statement, whose text is not known
		t.session.statements.doubt()
		return false, t.session.beforeLook(ctx, sql)
	}
	return t.session.before(ctx, sql, args, false)
}

// watch is called before a statement that may touch the transaction, done after it. named: it is
// the name of a prepared statement, whatever the tracker reads in it.
func (t *nativeTx) watch(ctx context.Context, sql string, named bool) (
	done func(tag pgconn.CommandTag, err error), err error,
) {
	opaque, err := t.tracker.Before(sql)
	switch {
	case err != nil:
		return nil, err
	case named, opaque && isName(sql): // a prepared statement is one alone
		return t.named, nil
	case !opaque:
		return func(_ pgconn.CommandTag, err error) { t.tracker.Observe(sql, err) }, nil
	}
	release, err := t.tracker.Guard(ctx, func(ctx context.Context, query string) error {
		_, err := t.session.before(ctx, query, nil, false)
		if err == nil {
			_, err = t.conn.Exec(ctx, query)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return func(_ pgconn.CommandTag, err error) { release(err) }, nil
}

// named is called after a statement that was executed by its name.
func (t *nativeTx) named(tag pgconn.CommandTag, err error) {
	if err == nil && touches(tag) {
		t.session.distrust()
		t.tracker.Observe("COMMIT", nil) // or a savepoint: nothing is certain any more
	}
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
