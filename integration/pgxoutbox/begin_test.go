package pgxoutbox_test

import (
	"bytes"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/pgxoutbox"
)

// abortText begins a transaction on the server and aborts it.
const abortText = "begin; ROLLBACK TO SAVEPOINT outbox_refused"

// isCode reports whether err is an error of the server with this code.
func isCode(err error, code string) bool {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pgErr.Code == code
}

// afterRefusal has the things that an application may do after an error that it ignores. do returns
// the error. asks says whether do sends something to the server.
var afterRefusal = []struct {
	name string
	asks bool
	do   func(f *flights, conn *sql.Conn, tx txn) error
}{
	{"Exec", true, func(f *flights, _ *sql.Conn, tx txn) error {
		_, err := tx.ExecContext(f.Context(), "INSERT INTO item (id) VALUES (1)")
		return err
	}},
	{"Exec with arguments", true, func(f *flights, _ *sql.Conn, tx txn) error {
		_, err := tx.ExecContext(f.Context(), "INSERT INTO item (id) VALUES ($1)", 1)
		return err
	}},
	{"Query", true, func(f *flights, _ *sql.Conn, tx txn) error {
		var id int
		return tx.QueryRowContext(f.Context(), "INSERT INTO item (id) VALUES ($1) RETURNING id", 1).Scan(&id)
	}},
	{"Prepare", true, func(f *flights, _ *sql.Conn, tx txn) error {
		stmt, err := tx.PrepareContext(f.Context(), "INSERT INTO item (id) VALUES ($1)")
		if err != nil {
			return err
		}
		defer stmt.Close()
		_, err = stmt.ExecContext(f.Context(), 1)
		return err
	}},
	{"COPY in Raw", true, func(f *flights, conn *sql.Conn, _ txn) error {
		return conn.Raw(func(dc any) error {
			own, err := pgxConn(dc)
			if err != nil {
				return err
			}
			_, err = own.CopyFrom(f.Context(), pgx.Identifier{"item"}, []string{"id"}, pgx.CopyFromRows([][]any{{1}}))
			return err
		})
	}},
	{"COPY on the connection of stdlib", true, func(f *flights, conn *sql.Conn, _ txn) error {
		return conn.Raw(func(dc any) error {
			inner := dc
			for {
				outer, ok := inner.(interface{ Raw() driver.Conn })
				if !ok {
					break
				}
				inner = outer.Raw() // Raw returns no error
			}
			var own *pgx.Conn
			var err error
			if std, ok := inner.(*stdlib.Conn); ok {
				own = std.Conn()
			} else if own, err = pgxConn(dc); err != nil { // native pgx has one way only
				return err
			}
			_, err = own.CopyFrom(f.Context(), pgx.Identifier{"item"}, []string{"id"}, pgx.CopyFromRows([][]any{{1}}))
			return err
		})
	}},
	{"Publish", false, func(_ *flights, _ *sql.Conn, tx txn) error { return tx.try(event("k")) }},
	{"Publish of an eager event", false, func(_ *flights, _ *sql.Conn, tx txn) error {
		e := event("k")
		e.Eager = true
		return tx.try(e)
	}},
	{"nothing", false, func(*flights, *sql.Conn, txn) error { return core.ErrTxAborted }},
}

// refusedFirst begins a transaction on a connection of its own, and lets the server refuse its
// first statement together with BEGIN.
func (f *flights) refusedFirst(pool *sql.DB, first string, args ...any) (*sql.Conn, txn) {
	f.Helper()
	conn, err := pool.Conn(f.Context())
	fixture.NoError(f.T, err)
	tx, err := conn.BeginTx(f.Context(), nil)
	fixture.NoError(f.T, err)
	if _, err := tx.ExecContext(f.Context(), first, args...); !isCode(err, "42601") {
		f.Errorf("the first statement: %v, want a syntax error of the server", err)
	}
	return conn, txn{f.T, tx, f}
}

// leaves requires that a transaction has left no rows, and that its connection can be used again.
func (f *flights) leaves(what string, pool *sql.DB, pid int) {
	f.Helper()
	if n := fixture.Count(f.T, f.direct, "SELECT COUNT(*) FROM item"); n != 0 {
		f.Errorf("%s: %d rows of a transaction that failed", what, n)
	}
	f.wantEvents(0)
	if got := f.pid(pool); pid != 0 && got != pid {
		f.Errorf("%s: the connection was closed", what)
	}
	id, heard, err := f.commit(f.Context(), pool, "k", true, func() {})
	fixture.Check(f, err == nil && heard == core.Committed && f.stored(id),
		"%s: the next transaction: %s, %v", what, heard, err)
	fixture.MustExec(f.T, f.direct, "TRUNCATE item, outbox_event, outbox_key")
}

// A text with a mistake in its syntax is refused together with the BEGIN in front of it, so the
// server has no transaction. Before the next statement, Connector begins a transaction and aborts
// it, so that the statement is refused as with pgx. Nothing commits by itself. A call that needs no
// answer of the server sends nothing.
func TestPgxFirstTextIsRefused(t *testing.T) {
	t.Parallel()
	for _, m := range modes {
		t.Run(m.String(), func(t *testing.T) {
			t.Parallel()
			f := newFlights(t, m)
			pool, last := f.open(pgxoutbox.Config{})
			defer pool.Close()
			_, _, err := f.commit(t.Context(), pool, "k", false, func() {}) // the outbox has seen the pool
			fixture.NoError(t, err)
			fixture.MustExec(t, f.direct, "TRUNCATE item, outbox_event, outbox_key")
			pid := f.pid(pool)
			state := func() string {
				return fixture.Query(t, f.direct, fmt.Sprintf("SELECT state FROM pg_stat_activity WHERE pid = %d", pid),
					func(r *sql.Rows) (s string, err error) { return s, r.Scan(&s) })[0]
			}
			for _, next := range afterRefusal {
				for _, commit := range []bool{true, false} {
					what := fmt.Sprintf("%s, commit %t", next.name, commit)
					last().arm(-1, -1)
					conn, tx := f.refusedFirst(pool, "SELECT FROM WHERE")
					if sent := last().written(); !strings.Contains(sent, "begin;SELECT FROM WHERE") {
						t.Errorf("%s: sent %q, want BEGIN in the first text", what, sent)
					}
					last().arm(-1, -1)
					if err := next.do(f, conn, tx); !isCode(err, "25P02") && !errors.Is(err, core.ErrTxAborted) {
						t.Errorf("%s: %v, want that the transaction is aborted", what, err)
					}
					sent := last().written()
					if n := strings.Count(sent, abortText); next.asks && n != 1 || !next.asks && sent != "" {
						t.Errorf("%s: sent %q", what, sent)
					}
					if next.asks {
						if got := state(); got != "idle in transaction (aborted)" {
							t.Errorf("%s: the server is %q", what, got)
						}
						last().arm(-1, -1)
						if err := next.do(f, conn, tx); err == nil || strings.Contains(last().written(), abortText) {
							t.Errorf("%s, again: %v, sent %q", what, err, last().written())
						}
					}
					if commit {
						if err := tx.Commit(); err == nil {
							t.Errorf("%s: committed", what)
						}
					} else {
						fixture.NoError(t, tx.Rollback())
					}
					fixture.NoError(t, conn.Close())
					f.leaves(what, pool, pid)
				}
			}
		})
	}
}

// The server refuses BEGIN itself, as a standby does for a serializable transaction. In the test it
// refuses BEGIN once, or always. It skips the statement behind BEGIN, and no later statement is
// executed. Raw does not pass on a connection that cannot be put into a transaction.
func TestPgxBeginIsRefused(t *testing.T) {
	t.Parallel()
	for _, m := range modes {
		for _, always := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, always %t", m, always), func(t *testing.T) {
				t.Parallel()
				f := newFlights(t, m)
				for _, first := range [][]any{
					{"INSERT INTO item (id) VALUES ($1)", 1}, {"INSERT INTO item (id) VALUES (1)"},
				} {
					for _, next := range afterRefusal {
						what := fmt.Sprintf("%v, %s", first, next.name)
						pool, last := f.open(pgxoutbox.Config{})
						_, _, err := f.commit(t.Context(), pool, "k", true, func() {}) // its statements are prepared
						fixture.NoError(t, err)
						fixture.MustExec(t, f.direct, "TRUNCATE item, outbox_event, outbox_key")
						pid, forged := f.pid(pool), 0
						last().forge(func(p []byte) []byte {
							if !bytes.Contains(p, []byte("begin")) || forged > 0 && !always {
								return p
							}
							forged++
							return bytes.Replace(p, []byte("begin"), []byte("begim"), 1)
						})
						conn, tx := f.refusedFirst(pool, first[0].(string), first[1:]...)
						for range 2 {
							if err := next.do(f, conn, tx); err == nil {
								t.Errorf("%s: no error", what)
							}
						}
						if err := tx.Commit(); err == nil {
							t.Errorf("%s: committed", what)
						}
						_ = conn.Close()
						last().forge(nil)
						fixture.Check(t, forged != 0, "%s: BEGIN was not sent", what)
						if always && strings.HasPrefix(next.name, "COPY") {
							pid = 0 // the connection is closed
						}
						f.leaves(what, pool, pid)
						fixture.NoError(t, pool.Close())
					}
				}
			})
		}
	}
}

// The connection is cut within the first statement, or within the BEGIN in front of it. The
// transaction leaves no rows, and its outcome is known.
func TestPgxFirstStatementIsCutAtEachByte(t *testing.T) {
	t.Parallel()
	for _, m := range modes {
		t.Run(m.String(), func(t *testing.T) {
			t.Parallel()
			f := newFlights(t, m)
			one := func(write, read int) (wrote, got int) {
				pool, last := f.open(pgxoutbox.Config{})
				defer pool.Close()
				ctx := t.Context()
				_, _, err := f.commit(ctx, pool, "k", true, func() {})
				fixture.NoError(t, err)
				before := fixture.Count(t, f.direct, "SELECT COUNT(*) FROM item")
				tx := f.begin(pool, nil)
				var heard []core.Outcome
				tx.own().OnOutcome(func(o core.Outcome) { heard = append(heard, o) })
				last().arm(write, read)
				_, first := tx.ExecContext(ctx, "INSERT INTO item (id) VALUES ($1)", f.n.Add(1))
				wrote, got = last().lengths()
				cut := write >= 0 || read >= 0
				_, second := tx.ExecContext(ctx, "INSERT INTO item (id) VALUES ($1)", f.n.Add(1))
				fixture.Check(t, !cut || (first != nil || write < 0) && second != nil,
					"write %d, read %d: the first statement: %v, the second: %v", write, read, first, second)
				end := tx.Rollback
				if cut {
					end = tx.Commit
				}
				if err := end(); (err == nil) == cut || !slices.Equal(heard, []core.Outcome{core.RolledBack}) {
					t.Errorf("write %d, read %d: %v, heard %s", write, read, err, heard)
				}
				if n := fixture.Count(t, f.direct, "SELECT COUNT(*) FROM item"); n != before {
					t.Errorf("write %d, read %d: %d rows", write, read, n-before)
				}
				return wrote, got
			}
			wrote, got := one(-1, -1)
			fixture.Must(t, wrote != 0 && got != 0, "the statement has %d bytes, and its answer %d", wrote, got)
			step := 1
			if testing.Short() {
				step = 13
			}
			for n := wrote % step; n < wrote; n += step {
				one(n, -1)
			}
			for n := got % step; n < got; n += step {
				one(-1, n)
			}
		})
	}
}
