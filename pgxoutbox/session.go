package pgxoutbox

import (
	"cmp"
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ormoutbox/ormoutbox/core"
)

// session begins and ends the transactions of one connection. The state of a transaction on the
// server is taken from the server's latest answer; it is never guessed from a text or from an
// error. Like the connection, a session is used by one goroutine at a time.
type session struct {
	pg  *pgx.Conn
	cfg *Config
	// statements with arguments go through the simple protocol too, if they are not prepared
	simple bool
	front  *frontend    // nil: BEGIN is sent when a transaction begins
	open   *transaction // nil: there is none

	settings   settingsCache
	statements statements
	tracer     pgx.BatchTracer // nil: there is none
	left       int64           // what was sent when the session was last left; see sessionOf
}

// transaction is a transaction that the application has begun and not ended.
type transaction struct {
	begin    string // the text that begins it
	commit   string // the text that commits it
	readOnly bool
	// events are written at once, until the transaction ends: a statement passed that may have set
	// a savepoint, or other code holds the connection
	eager bool
	waits waiting
	lost  error            // events that waited were not written, and never will be
	inner pgx.BatchResults // has the same transaction as one of pgx; nil: it was not needed
}

const commitText = "commit"

// endTimeout limits a ROLLBACK whose context has ended.
const endTimeout = 5 * time.Second

// newSession makes the session of a connection.
func newSession(pg *pgx.Conn, cfg *Config) *session {
	own := pg.Config()
	s := &session{pg: pg, cfg: cfg, simple: own.DefaultQueryExecMode == pgx.QueryExecModeSimpleProtocol}
	s.tracer, _ = own.Tracer.(pgx.BatchTracer)
	if !cfg.EagerBegin {
		s.front = frontendOf(pg.PgConn())
	}
	// In the usual mode, pgx prepares every statement. Without a frontend, statements of a function
	// in Config.Options are not seen.
	if own.DefaultQueryExecMode != pgx.QueryExecModeCacheStatement && s.front != nil {
		s.statements.off = &s.front.pool.unprepared
	}
	return s
}

// sessionOf returns the session of a connection that a pool of pgx has lent. The pool lends it to
// others too, who may have deallocated its statements.
func sessionOf(pg *pgx.Conn) *session {
	data := pg.PgConn().CustomData()
	s, ok := data[sessionData].(*session)
	if !ok || s.pg != pg {
		s = newSession(pg, &Config{})
		data[sessionData] = s
	}
	if s.front.sent() != s.left {
		s.statements.doubt()
	}
	return s
}

// leave ends the use of a session of sessionOf.
func (s *session) leave() { s.left = s.front.sent() }

func (s *session) closed() bool { return s.pg.IsClosed() }

// inTx reports whether a transaction is open for the application.
func (s *session) inTx() bool { return s.open != nil }

// unsent reports whether BEGIN of the open transaction has not been sent yet.
func (s *session) unsent() bool { return s.open != nil && s.front != nil && s.front.unsent() }

// refused reports whether the server did not begin the open transaction. Nothing may be sent in it.
func (s *session) refused() bool { return s.open != nil && s.front != nil && s.front.refused() }

// status returns T, E or I as pgconn.PgConn.TxStatus does, as if BEGIN had been sent at once. It
// returns 0 if the connection is closed.
func (s *session) status() byte {
	switch {
	case s.closed():
		return 0
	case s.unsent():
		return 'T'
	case s.refused():
		return 'E'
	}
	return s.pg.PgConn().TxStatus()
}

// inBlock reports whether a transaction is open on the server, aborted or not.
func (s *session) inBlock() bool {
	status := s.status()
	return status == 'T' || status == 'E'
}

// begin begins a transaction.
func (s *session) begin(ctx context.Context, o pgx.TxOptions) error {
	own := o.BeginQuery != "" || o.CommitQuery != "" // texts of the application
	t := &transaction{
		begin: beginText(o), commit: cmp.Or(o.CommitQuery, commitText), readOnly: o.AccessMode == pgx.ReadOnly,
		eager: s.cfg.Eager || own,
	}
	if s.front == nil || own {
		if _, err := s.pg.BeginTx(ctx, o); err != nil {
			return err
		}
	} else {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("pgxoutbox: begin: %w", err)
		}
		if s.alive(ctx) {
			s.statements.ask(ctx, s.pg.PgConn())
		}
		if s.closed() {
			return driver.ErrBadConn
		}
		s.front.owe(t.begin)
	}
	s.open = t
	return nil
}

// beginText returns pgx's text for o.
func beginText(o pgx.TxOptions) string {
	if o.BeginQuery != "" {
		return o.BeginQuery
	}
	var b strings.Builder
	b.WriteString("begin")
	if o.IsoLevel != "" {
		b.WriteString(" isolation level " + string(o.IsoLevel))
	}
	if o.AccessMode != "" {
		b.WriteString(" " + string(o.AccessMode))
	}
	if o.DeferrableMode != "" {
		b.WriteString(" " + string(o.DeferrableMode))
	}
	return b.String()
}

// before is called before each statement. taken: the statement inserts events, and is sent later.
// prepared: text was prepared; args are its arguments.
func (s *session) before(ctx context.Context, text string, args []any, prepared bool) (taken bool, err error) {
	if s.closed() {
		return false, nil // pgx returns the error
	}
	extended, known := s.extended(args, prepared)
	if !known {
		s.statements.doubt()
	} else {
		s.statements.shown(text, extended)
	}
	if s.open == nil {
		return false, nil
	}
	if err := s.beforePrepare(ctx); err != nil {
		return false, err
	}
	if taken, err := s.take(ctx, text, args); taken || err != nil {
		return taken, err
	}
	t := s.open
	if t.eager {
		return false, s.flush(ctx, text) // nothing waits, unless an earlier flush could not be tried
	}
	var names []string
	if !t.waits.empty() {
		names = t.waits.names()
	}
	switch k := judge(text, extended, names); {
	case k == other || !known:
		t.eager = true
	case k == harmless:
		return false, nil
	}
	return false, s.flush(ctx, text)
}

// extended reports whether a statement with these arguments goes through the extended protocol. If
// not known, the text that is sent is another one.
func (s *session) extended(args []any, prepared bool) (extended, known bool) {
	extended, known = prepared || len(args) > 0, true
	if !prepared && s.simple {
		extended = false
	}
	for _, arg := range args {
		switch arg.(type) {
		case pgx.NamedArgs, pgx.StrictNamedArgs, pgx.QueryExecMode, pgx.QueryResultFormats, pgx.QueryResultFormatsByOID:
			extended = false // or perhaps not
		case pgx.QueryRewriter:
			extended, known = false, false
		}
	}
	return extended, known
}

// beforeLook is called before something that may see the events but does not touch the transaction.
func (s *session) beforeLook(ctx context.Context, what string) error {
	if err := s.beforePrepare(ctx); err != nil {
		return err
	}
	return s.flush(ctx, what)
}

// beforePrepare is called before a statement is prepared.
func (s *session) beforePrepare(ctx context.Context) error {
	if s.closed() || !s.refused() {
		return nil
	}
	return s.abort(ctx)
}

// errAborted is the server's answer in an aborted transaction.
var errAborted = &pgconn.PgError{
	Severity: "ERROR", SeverityUnlocalized: "ERROR", Code: "25P02",
	Message: "current transaction is aborted, commands ignored until end of transaction block",
}

// abort begins a transaction on the server and aborts it, after the server refused a text that
// began with BEGIN because of a mistake in its syntax. Without a transaction, the next statement
// would commit on its own.
func (s *session) abort(ctx context.Context) error {
	const refused = "; ROLLBACK TO SAVEPOINT outbox_refused"
	err := s.pg.PgConn().Exec(ctx, s.open.begin+refused).Close()
	if s.closed() {
		return err
	}
	if s.pg.PgConn().TxStatus() != 'E' {
		return errAborted
	}
	s.front.forgive()
	return nil
}

// lend returns the connection for use by others: BEGIN is sent.
func (s *session) lend(ctx context.Context) (*pgx.Conn, error) {
	s.statements.doubt()
	if s.open == nil || s.closed() {
		return s.pg, nil
	}
	s.open.eager = true
	err := s.flush(ctx, "the use of the connection")
	switch {
	case err != nil:
	case s.unsent():
		err = s.pg.PgConn().Exec(ctx, "").Close() // BEGIN alone
	case s.refused():
		err = s.abort(ctx)
	}
	if s.refused() { // without a transaction, statements would commit by themselves
		s.kill()
	}
	return s.pg, err
}

// commit ends the transaction.
func (s *session) commit(ctx context.Context) (core.Outcome, error) {
	defer s.drop()
	t := s.open
	if t == nil {
		return core.RolledBack, pgx.ErrTxClosed
	}
	if status := s.status(); !t.waits.empty() && status != 'T' {
		s.dropWaiting(status)
	}
	switch {
	case t.lost != nil && s.inBlock():
		return core.RolledBack, errors.Join(t.lost, s.sendRollback(ctx))
	case t.lost != nil:
		return core.Unknown, t.lost
	case s.closed():
		return core.RolledBack, errors.New("pgxoutbox: commit: the connection is closed, and no COMMIT was sent")
	case ctx.Err() != nil:
		return core.RolledBack, ended(ctx, s.sendRollback(ctx))
	case s.refused():
		return core.RolledBack, pgx.ErrTxCommitRollback
	case s.unsent() && t.waits.empty():
		return core.Committed, nil
	case s.pg.PgConn().IsBusy():
		s.kill()
		return core.RolledBack, errBusy
	case !t.waits.empty():
		return s.flight(ctx)
	}
	tag, err := s.pg.Exec(ctx, t.commit)
	if t.commit != commitText && err == nil && tag.String() != "ROLLBACK" { // as pgx judges such a text
		return core.Committed, nil
	}
	outcome, err := judgeCommit(tag, err)
	if outcome != core.Committed && !s.closed() && s.pg.PgConn().TxStatus() != 'I' {
		s.kill()
	}
	return outcome, err
}

var errBusy = errors.New("pgxoutbox: the rows of another statement are open on this connection: read them or " +
	"close them first")

// ended returns the error of a COMMIT that was not sent because ctx had ended.
func ended(ctx context.Context, rollback error) error {
	err := ctx.Err()
	if cause := context.Cause(ctx); !errors.Is(cause, err) {
		err = fmt.Errorf("%w: %w", err, cause)
	}
	if rollback != nil {
		return fmt.Errorf("pgxoutbox: not committed: %w; roll back: %w", err, rollback)
	}
	return fmt.Errorf("pgxoutbox: rolled back instead of committed: %w", err)
}

// judgeCommit returns the outcome of a COMMIT that was sent. Only a tag proves a commit, and only
// an error of the server proves that there was none. An error that pgx calls safe to retry proves
// nothing: it is "conn closed" both for a connection that is lost while the answer is read, and for
// one that was closed before.
func judgeCommit(tag pgconn.CommandTag, err error) (core.Outcome, error) {
	switch {
	case tag.String() == "COMMIT":
		return core.Committed, nil // whatever became of the connection
	case err == nil && tag.String() == "ROLLBACK":
		return core.RolledBack, pgx.ErrTxCommitRollback
	case err == nil:
		return core.Unknown, fmt.Errorf("pgxoutbox: the server answered COMMIT by %q", tag)
	case refusedBy(err):
		return core.RolledBack, err
	}
	return core.Unknown, err
}

// refusedBy reports whether err is an error of the server that leaves the connection as it is.
func refusedBy(err error) bool {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return false
	}
	severity := pgErr.SeverityUnlocalized
	if severity == "" {
		severity = pgErr.Severity
	}
	return severity != "FATAL" && severity != "PANIC"
}

// rollback rolls the transaction back. The end of ctx does not prevent it.
func (s *session) rollback(ctx context.Context) error {
	defer s.drop()
	return s.sendRollback(ctx)
}

func (s *session) sendRollback(ctx context.Context) error {
	if s.unsent() || s.refused() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	_, err := s.pg.Exec(ctx, "rollback")
	if err != nil {
		s.kill() // its state is not known
	}
	return err
}

// drop forgets the transaction: it has ended, or its connection ends.
func (s *session) drop() {
	if s.front != nil {
		s.front.forget()
	}
	if t := s.open; t != nil && t.inner != nil {
		_ = t.inner.Close() // sends nothing
	}
	s.open = nil
}

// inner returns the open transaction as one of pgx, or one that is closed if none is open.
func (s *session) inner(ctx context.Context) pgx.Tx {
	var b pgx.Batch
	switch t := s.open; {
	case t == nil:
		b.BeginTx(pgx.TxOptions{})
		return pgx.FailedBatchResults(&b, pgx.ErrTxClosed).Tx()
	case t.inner == nil:
		b.BeginTx(pgx.TxOptions{})
		b.QueuedQueries = nil // so pgx sends nothing
		t.inner = s.pg.SendBatch(ctx, &b)
	}
	return s.open.inner.Tx()
}

// distrust makes Publish write at once, after a statement that may have set a savepoint.
func (s *session) distrust() { s.open.eager = true }

// kill closes the connection without waiting for the server.
func (s *session) kill() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = s.pg.Close(ctx)
}
