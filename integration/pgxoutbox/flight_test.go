package pgxoutbox_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
	"github.com/ormoutbox/ormoutbox/pgxoutbox"
)

// wire is a connection that can be cut in the middle of a write, or of the answer.
type wire struct {
	net.Conn
	mu          sync.Mutex
	armed       bool
	write, read int // bytes that still pass; -1: all
	wrote, got  int // bytes that passed since the wire was armed
	cut         bool
	sent        []byte                // the bytes that passed since the wire was armed
	broken      []byte                // the write that was cut, whole
	change      func(p []byte) []byte // changes the bytes that are written; may be nil
	instead     []byte                // what is read in place of the next answer, before the cut; may be nil
}

func (w *wire) arm(write, read int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.armed, w.write, w.read, w.wrote, w.got, w.sent = true, write, read, 0, 0, nil
}

// forge changes the bytes that are written from now on. It must not change their number.
func (w *wire) forge(change func(p []byte) []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.change = change
}

// answerBy puts an answer in place of that of the server, and cuts the connection behind it.
func (w *wire) answerBy(answer []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.instead = answer
}

// written returns the bytes that were written since the wire was armed.
func (w *wire) written() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return string(w.sent)
}

// cutProbe reports whether the write that was cut only checked that the connection can be used.
// Then no part of a claim was sent, and another connection makes the claim.
func (w *wire) cutProbe() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return bytes.Contains(w.broken, []byte("-- ping\x00")) ||
		bytes.Contains(w.broken, []byte("SELECT pg_backend_pid()\x00"))
}

// lengths returns how many bytes passed since the wire was armed.
func (w *wire) lengths() (wrote, got int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.wrote, w.got
}

var errCut = errors.New("the test has cut the connection")

func (w *wire) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cut {
		return 0, errCut
	}
	if w.armed && w.write >= 0 && w.write < len(p) {
		n, _ := w.Conn.Write(p[:w.write])
		w.cut, w.broken = true, bytes.Clone(p)
		_ = w.Close()
		return n, errCut
	}
	if w.change != nil {
		p = w.change(p)
	}
	n, err := w.Conn.Write(p)
	if w.armed {
		w.wrote += n
		w.sent = append(w.sent, p[:n]...)
		if w.write >= 0 {
			w.write -= n
		}
	}
	return n, err
}

func (w *wire) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cut {
		return 0, errCut
	}
	if w.instead != nil && err == nil {
		w.cut = true
		_ = w.Close()
		return copy(p, w.instead), nil
	}
	if !w.armed || err != nil {
		return n, err
	}
	if w.read >= 0 && n >= w.read {
		w.cut = true
		_ = w.Close()
		if n = w.read; n == 0 {
			return 0, errCut
		}
		return n, nil
	}
	w.got += n
	if w.read >= 0 {
		w.read -= n
	}
	return n, nil
}

// flights makes flights on connections that can be cut. A flight is what Connector sends at Commit,
// in one write: the events that waited, and COMMIT.
type flights struct {
	*testing.T
	db     testdb.DB
	direct *sql.DB
	ob     *core.Outbox
	protocol
	warm int // flights before the one that is cut
	n    atomic.Int64
}

func newFlights(t *testing.T, p protocol) *flights {
	t.Helper()
	return newFlightsOn(t, testdb.Postgres(t), p)
}

func newFlightsOn(t *testing.T, db testdb.DB, p protocol) *flights {
	t.Helper()
	f := &flights{T: t, db: db, direct: db.Open(t), ob: fixture.NewOutbox(t, db, core.Config{}), protocol: p, warm: 2}
	fixture.MustExec(t, f.direct, "CREATE TABLE item (id BIGINT PRIMARY KEY)")
	return f
}

// open opens a pool of one connection, and returns its wire.
func (f *flights) open(cfg pgxoutbox.Config) (*sql.DB, func() *wire) {
	f.Helper()
	conn, err := pgx.ParseConfig(f.db.DSN)
	fixture.NoError(f.T, err)
	conn.DefaultQueryExecMode = f.mode
	dial := conn.DialFunc
	var last atomic.Pointer[wire]
	first := true // later connections are for cancel requests
	conn.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err != nil || !first {
			return c, err
		}
		first = false
		w := &wire{Conn: c}
		last.Store(w)
		return w, nil
	}
	cfg.Conn = *conn
	pool := f.connect(cfg, 1)
	pool.SetMaxOpenConns(1)
	return pool, last.Load
}

// connect opens a pool. Only Connector has the other settings of cfg.
func (f *flights) connect(cfg pgxoutbox.Config, conns int32) *sql.DB {
	f.Helper()
	if f.native {
		return sql.OpenDB(newNativeDriver(f.T, cfg.Conn, conns))
	}
	return sql.OpenDB(pgxoutbox.Connector(cfg))
}

// commit commits an event with a row of the application, or without, and returns the reported
// outcome and the error.
func (f *flights) commit(
	ctx context.Context, pool *sql.DB, key string, row bool, before func(),
) (id string, heard core.Outcome, err error) {
	f.Helper()
	tx, err := pool.BeginTx(ctx, nil)
	fixture.NoError(f.T, err)
	if row {
		_, err = tx.ExecContext(ctx, "INSERT INTO item (id) VALUES ($1)", f.n.Add(1))
		fixture.NoError(f.T, err)
	}
	own, err := coreTx(ctx, tx, f.native)
	fixture.NoError(f.T, err)
	e := core.Event{ID: core.NewEventID(), Type: "t", Topic: "t", Key: key, Payload: []byte("{}")}
	_, err = f.ob.Publish(ctx, own, e)
	fixture.NoError(f.T, err)
	own.OnOutcome(func(o core.Outcome) { heard = o })
	before()
	err = tx.Commit()
	return e.ID, heard, err
}

// pid returns the id of the server's process for the only connection of a pool.
func (f *flights) pid(pool *sql.DB) (pid int) {
	f.Helper()
	fixture.NoError(f.T, pool.QueryRowContext(f.Context(), "SELECT pg_backend_pid()").Scan(&pid))
	return pid
}

func (f *flights) stored(id string) bool {
	f.Helper()
	return fixture.Count(f.T, f.direct, "SELECT COUNT(*) FROM outbox_event WHERE event_id = '"+id+"'") == 1
}

// one cuts one flight and requires that the reported outcome is true.
func (f *flights) one(row bool, write, read int) (wrote, got int) {
	f.Helper()
	pool, last := f.open(pgxoutbox.Config{})
	defer pool.Close()
	ctx := f.Context()
	for range f.warm { // so that the statements are prepared
		_, _, err := f.commit(ctx, pool, "k", row, func() {})
		fixture.NoError(f.T, err)
	}
	pid := f.pid(pool)
	id, heard, err := f.commit(ctx, pool, "k", row, func() { last().arm(write, read) })
	wrote, got = last().lengths()
	if write >= 0 || read >= 0 {
		gone := fmt.Sprintf("pid = %d", pid)
		if f.db.Name == "pgbouncer" { // PgBouncer keeps a connection whose transaction has ended
			gone += " AND state LIKE 'idle in transaction%' OR datname = current_database() AND state = 'active' " +
				"AND pid <> pg_backend_pid()"
		}
		fixture.Await(f.T, "the server has ended the connection", func() bool {
			return fixture.Count(f.T, f.direct, "SELECT COUNT(*) FROM pg_stat_activity WHERE "+gone) == 0
		})
	}
	there := f.stored(id)
	what := fmt.Sprintf("write %d, read %d: heard %s, stored %t, Commit: %v", write, read, heard, there, err)
	switch {
	case (err == nil) != (heard == core.Committed):
		f.Errorf("the error and the outcome differ: %s", what)
	case err != nil && write < 0 && read < 0:
		f.Errorf("a flight that was not cut: %s", what)
	case heard == core.Committed && !there, heard == core.RolledBack && there:
		f.Errorf("a lie: %s", what)
	case heard == core.Unknown && !errors.Is(err, core.ErrCommitUnknown):
		f.Errorf("no ErrCommitUnknown: %s", what)
	}
	return wrote, got
}

// The connection is cut after each byte of the flight, and after each byte of its answer. The
// outcome that is reported must be true. The first flight sends the INSERT as the query mode of pgx
// wants it. In other modes than the usual one, the second flight prepares it, and the third
// executes it by its name.
func TestPgxFlightIsCutAtEachByte(t *testing.T) {
	t.Parallel()
	for _, m := range modes {
		warm := []int{0}
		switch m.mode {
		case pgx.QueryExecModeCacheStatement:
			warm = []int{2}
		case pgx.QueryExecModeSimpleProtocol:
			warm = []int{0, 1, 2}
		case pgx.QueryExecModeCacheDescribe:
			warm = nil // its first flight is that of describe_exec, and the others are the same in all modes
		default:
		}
		for _, warm := range warm {
			for _, row := range []bool{true, false} { // without a row, BEGIN is in the flight
				t.Run(fmt.Sprintf("%s, row %t, flight %d", m, row, warm+1), func(t *testing.T) {
					t.Parallel()
					f := newFlights(t, m)
					f.warm = warm
					wrote, got := f.one(row, -1, -1)
					fixture.Must(t, wrote != 0 && got != 0, "the flight has %d bytes, and its answer %d", wrote, got)
					step := 1
					if testing.Short() {
						step = 13
					}
					for n := wrote % step; n < wrote; n += step {
						f.one(row, n, -1)
					}
					for n := got % step; n < got; n += step {
						f.one(row, -1, n)
					}
					t.Logf("%d bytes, %d bytes of answer", wrote, got)
				})
			}
		}
	}
}

// locked holds the lock of a key until release is called.
func (f *flights) locked(key string) (release func()) {
	f.Helper()
	tx, err := sqltx.Begin(f.Context(), f.direct, nil, core.Postgres)
	fixture.NoError(f.T, err)
	_, err = f.ob.Publish(f.Context(), tx, core.Event{Type: "t", Topic: "t", Key: key, Payload: []byte("{}")})
	fixture.NoError(f.T, err)
	return func() { fixture.NoError(f.T, tx.Rollback()) }
}

// awaitLock returns when a flight waits for a lock.
func (f *flights) awaitLock() {
	f.Helper()
	fixture.Await(f.T, "the flight waits for the lock of its key", func() bool {
		return fixture.Count(f.T, f.direct, "SELECT COUNT(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' "+
			"AND datname = current_database()") == 1
	})
}

// The context ends while the flight waits for a lock. Nothing is committed, then or later, and the
// error says so. The pool goes on.
func TestPgxFlightIsCancelled(t *testing.T) {
	t.Parallel()
	for _, m := range modes {
		t.Run(m.String(), func(t *testing.T) {
			t.Parallel()
			f := newFlights(t, m)
			pool, _ := f.open(pgxoutbox.Config{CancelGrace: time.Minute})
			defer pool.Close()
			pid := f.pid(pool)
			release := f.locked("k")
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			cause := errors.New("the reason")
			go func() {
				f.awaitLock()
				cancel(cause)
			}()
			id, _, err := f.commit(ctx, pool, "k", true, func() {})
			release()
			pgErr, known := errors.AsType[*pgconn.PgError](err)
			if !errors.Is(err, cause) || !known || pgErr.Code != "57014" || errors.Is(err, core.ErrCommitUnknown) {
				t.Errorf("Commit: %v, want the reason and the answer of the server", err)
			}
			fixture.Check(t, !f.stored(id), "the event of a cancelled commit is there")
			if f.pid(pool) == pid { // a late cancel request would hit the next statement
				t.Error("the connection is used again after a cancel request")
			}
			if id, _, err := f.commit(t.Context(), pool, "k", true, func() {}); err != nil || !f.stored(id) {
				t.Errorf("the next transaction: %v", err)
			}
		})
	}
}

// The server ends the connection while the flight waits. COMMIT was not executed, but the error
// could be that of a pooler, which does not know that.
func TestPgxFlightIsTerminated(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, f *flights) {
		pool, _ := f.open(pgxoutbox.Config{})
		defer pool.Close()
		release := f.locked("k")
		defer release()
		go func() {
			f.awaitLock()
			_, _ = f.direct.Exec(
				"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event_type = 'Lock' " +
					"AND datname = current_database()",
			)
		}()
		id, heard, err := f.commit(t.Context(), pool, "k", true, func() {})
		fixture.Check(t, errors.Is(err, core.ErrCommitUnknown) && heard == core.Unknown,
			"Commit: %v, heard %s, want that the outcome is unknown", err, heard)
		fixture.Check(t, !f.stored(id), "the event is there")
	})
}

// The server commits, and its connection to a pooler is lost before the pooler has the answer. The
// pooler answers by an error of its own, as PgBouncer does: that is no answer of the server.
func TestPgxFlightIsAnsweredByPooler(t *testing.T) {
	t.Parallel()
	crashed := (&pgproto3.ErrorResponse{
		Severity: "FATAL", SeverityUnlocalized: "FATAL", Code: "08P01", Message: "server conn crashed?",
	})
	answer, err := crashed.Encode(nil)
	fixture.NoError(t, err)
	for _, m := range modes {
		t.Run(m.String(), func(t *testing.T) {
			t.Parallel()
			f := newFlights(t, m)
			pool, last := f.open(pgxoutbox.Config{})
			defer pool.Close()
			for range f.warm {
				_, _, err := f.commit(t.Context(), pool, "k", true, func() {})
				fixture.NoError(t, err)
			}
			id, heard, err := f.commit(t.Context(), pool, "k", true, func() { last().answerBy(answer) })
			fixture.Check(t, errors.Is(err, core.ErrCommitUnknown) && heard == core.Unknown,
				"Commit: %v, heard %s, want that the outcome is unknown", err, heard)
			fixture.Check(t, f.stored(id), "the server has not committed: the test proves nothing")
		})
	}
}
