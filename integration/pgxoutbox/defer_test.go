package pgxoutbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/pgxoutbox"
)

// txn is a transaction of a test.
type txn struct {
	*testing.T
	*sql.Tx
	f *flights
}

func (f *flights) begin(pool *sql.DB, opts *sql.TxOptions) txn {
	f.Helper()
	tx, err := pool.BeginTx(f.Context(), opts)
	fixture.NoError(f.T, err)
	f.Cleanup(func() { _ = tx.Rollback() })
	return txn{f.T, tx, f}
}

func (x txn) own() core.Tx {
	x.Helper()
	own, err := coreTx(x.Context(), x.Tx, x.f.native)
	fixture.NoError(x.T, err)
	return own
}

func (x txn) try(events ...core.Event) error {
	x.Helper()
	own, err := coreTx(x.Context(), x.Tx, x.f.native)
	if err == nil {
		_, err = x.f.ob.Publish(x.Context(), own, events...)
	}
	return err
}

func (x txn) publish(events ...core.Event) {
	x.Helper()
	fixture.NoError(x.T, x.try(events...))
}

func (x txn) exec(query string, args ...any) {
	x.Helper()
	_, err := x.ExecContext(x.Context(), query, args...)
	fixture.NoError(x.T, err)
}

func (x txn) want(n int, query string) {
	x.Helper()
	var got int
	fixture.NoError(x.T, x.QueryRowContext(x.Context(), query).Scan(&got))
	fixture.Check(x, got == n, "%s: %d, want %d", query, got, n)
}

func event(key string) core.Event {
	return core.Event{ID: core.NewEventID(), Type: "t", Topic: "t", Key: key, Payload: []byte("{}")}
}

const countEvents = "SELECT COUNT(*) FROM outbox_event"

// wantEvents requires that n events are stored.
func (f *flights) wantEvents(n int64) {
	f.Helper()
	if got := fixture.Count(f.T, f.direct, countEvents); got != n {
		f.Errorf("%d events are stored, want %d", got, n)
	}
}

// trace remembers what pgx sends.
type trace struct {
	mu  sync.Mutex
	all []string
}

func (r *trace) add(s string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, strings.Join(strings.Fields(s)[:3], " "))
}

func (r *trace) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	r.add(d.SQL + " . .")
	return ctx
}
func (*trace) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (r *trace) TraceBatchStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceBatchStartData) context.Context {
	for _, q := range d.Batch.QueuedQueries {
		r.add("batch: " + q.SQL + " .")
	}
	return ctx
}
func (*trace) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (*trace) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

// Events of several calls wait while statements pass that do not read the outbox. They are sent in
// one statement, together with COMMIT. The transaction has no other statements.
func TestPgxOneFlight(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, f *flights) {
		cfg, err := pgx.ParseConfig(f.db.DSN)
		fixture.NoError(t, err)
		var sent trace
		cfg.Tracer = &sent
		pool := f.connect(pgxoutbox.Config{Conn: *cfg}, 2)
		defer pool.Close()
		tx := f.begin(pool, nil)
		tx.publish(event("b")) // the outbox looks at the first transaction of another pool
		fixture.NoError(t, tx.Rollback())
		sent.all = nil
		tx = f.begin(pool, nil)
		tx.publish(event("b"), event("a"))
		tx.exec("INSERT INTO item (id) VALUES ($1)", 1)
		tx.publish(event(""))
		tx.publish(event("a"))
		tx.want(1, "SELECT COUNT(*) FROM item")
		f.wantEvents(0)
		fixture.NoError(t, tx.Commit())
		f.wantEvents(4)
		want := []string{"INSERT INTO item", "SELECT COUNT(*) FROM", "batch: WITH k", "batch: commit ."}
		fixture.Check(t, slices.Equal(sent.all, want), "sent %q, want %q", sent.all, want)
		if n := fixture.Count(t, f.direct,
			"SELECT COUNT(DISTINCT key_seq) FROM outbox_event WHERE partition_key = 'a'"); n != 2 {
			t.Errorf("the two events of a key have %d numbers", n)
		}
	})
}

// Events that wait are sent before a statement that could notice that they are missing.
func TestPgxFlushesBefore(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, f *flights) {
		pool, _ := f.open(pgxoutbox.Config{})
		defer pool.Close()
		t.Run("a look at the table", func(t *testing.T) {
			tx := f.begin(pool, nil)
			tx.T = t
			tx.publish(event("k"))
			tx.want(1, countEvents)
			tx.publish(event("k")) // waits again
			tx.want(2, countEvents)
			fixture.NoError(t, tx.Rollback())
		})
		t.Run("a prepared look", func(t *testing.T) {
			tx := f.begin(pool, nil)
			stmt, err := tx.PrepareContext(t.Context(), countEvents)
			fixture.NoError(t, err)
			defer stmt.Close()
			for n := 1; n < 3; n++ {
				tx.publish(event("k"))
				var got int
				fixture.NoError(t, stmt.QueryRowContext(t.Context()).Scan(&got))
				fixture.Check(t, got == n, "%d events, want %d", got, n)
			}
			fixture.NoError(t, tx.Rollback())
		})
		t.Run("Raw", func(t *testing.T) {
			conn, err := pool.Conn(t.Context())
			fixture.NoError(t, err)
			defer conn.Close()
			sqlTx, err := conn.BeginTx(t.Context(), nil)
			fixture.NoError(t, err)
			tx := txn{t, sqlTx, f}
			tx.publish(event("k"))
			fixture.NoError(t, conn.Raw(func(dc any) error {
				own, err := pgxConn(dc)
				fixture.NoError(t, err)
				var n int
				fixture.NoError(t, own.QueryRow(t.Context(), countEvents).Scan(&n))
				if n != 1 || own.PgConn().TxStatus() != 'T' {
					t.Errorf("%d events, status %c", n, own.PgConn().TxStatus())
				}
				_, err = own.CopyFrom(
					t.Context(),
					pgx.Identifier{"item"},
					[]string{"id"},
					pgx.CopyFromRows([][]any{{-1}}),
				)
				return err
			}))
			fixture.NoError(t, tx.Rollback())
		})
		t.Run("a savepoint", func(t *testing.T) {
			twin := event("k")
			tx := f.begin(pool, nil)
			tx.publish(twin)
			tx.exec("SAVEPOINT s")
			if err := tx.try(twin); !errors.Is(err, core.ErrDuplicateEvent) {
				t.Errorf("a duplicate in a savepoint: %v", err)
			}
			tx.exec("ROLLBACK TO s")
			fixture.NoError(t, tx.Commit())
			fixture.Check(t, f.stored(twin.ID), "the event before the savepoint is not there")
		})
		t.Run("Flush", func(t *testing.T) {
			twin := event("")
			tx := f.begin(pool, nil)
			tx.publish(twin)
			fixture.NoError(t, sqltx.Flush(t.Context(), tx.own()))
			tx.publish(twin)
			if err := sqltx.Flush(t.Context(), tx.own()); !errors.Is(err, core.ErrDuplicateEvent) {
				t.Errorf("Flush of a duplicate: %v", err)
			}
			if err := tx.Commit(); err == nil {
				t.Error("an aborted transaction committed")
			}
			fixture.Check(t, !f.stored(twin.ID), "the event is there")
			plain, err := f.direct.BeginTx(t.Context(), nil)
			fixture.NoError(t, err)
			defer plain.Rollback()
			own, err := sqltx.TxOf(t.Context(), plain)
			fixture.NoError(t, err)
			fixture.NoError(t, sqltx.Flush(t.Context(), own))
		})
	})
}

// Commit reports a duplicate, with its event and with the error of the server. If the event is
// Eager, Publish reports it.
func TestPgxDuplicates(t *testing.T) {
	t.Parallel()
	for _, m := range modes {
		t.Run(m.String(), func(t *testing.T) {
			t.Parallel()
			f := newFlights(t, m)
			pool, _ := f.open(pgxoutbox.Config{})
			defer pool.Close()
			twin := event("k")
			tx := f.begin(pool, nil)
			tx.publish(twin)
			fixture.NoError(t, tx.Commit())

			tx = f.begin(pool, nil)
			tx.exec("INSERT INTO item (id) VALUES ($1)", 1)
			tx.publish(twin)
			err := tx.Commit()
			pgErr, ok := errors.AsType[*pgconn.PgError](err)
			if !errors.Is(err, core.ErrDuplicateEvent) || !strings.Contains(fmt.Sprint(err), twin.ID) || !ok ||
				pgErr.Code != "23505" || errors.Is(err, core.ErrCommitUnknown) {
				t.Errorf("Commit: %v", err)
			}
			if _, bare := err.(*pgconn.PgError); bare { //nolint:errorlint // GORM asks like that
				t.Error("the error of the server is not wrapped")
			}
			if n := fixture.Count(t, f.direct, "SELECT COUNT(*) FROM item"); n != 0 {
				t.Errorf("%d rows of a commit that failed", n)
			}

			tx = f.begin(pool, nil)
			again := twin
			again.Eager = true
			if err := tx.try(again); !errors.Is(err, core.ErrDuplicateEvent) {
				t.Errorf("Publish of an Eager duplicate: %v", err)
			}
			fixture.NoError(t, tx.Rollback())
			f.wantEvents(1)
		})
	}
}

// In Raw, the connection of pgx is in the transaction, although nothing was sent before.
func TestPgxRawBeginsFirst(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, f *flights) {
		pool, _ := f.open(pgxoutbox.Config{})
		defer pool.Close()
		conn, err := pool.Conn(t.Context())
		fixture.NoError(t, err)
		defer conn.Close()
		tx, err := conn.BeginTx(t.Context(), nil)
		fixture.NoError(t, err)
		fixture.NoError(t, conn.Raw(func(dc any) error {
			own, err := pgxConn(dc)
			fixture.NoError(t, err)
			_, err = own.CopyFrom(
				t.Context(),
				pgx.Identifier{"item"},
				[]string{"id"},
				pgx.CopyFromRows([][]any{{1}, {2}}),
			)
			return err
		}))
		fixture.NoError(t, tx.Rollback())
		if n := fixture.Count(t, f.direct, "SELECT COUNT(*) FROM item"); n != 0 {
			t.Errorf("%d rows of a transaction that was rolled back", n)
		}
	})
}

// After an error events are not sent, and the next statement gets the answer of the server.
func TestPgxNothingIsFlushedAfterAFailure(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, f *flights) {
		pool, _ := f.open(pgxoutbox.Config{})
		defer pool.Close()
		tx := f.begin(pool, nil)
		e := event("k")
		tx.publish(e)
		if _, err := tx.ExecContext(t.Context(), "INSERT INTO no_such_table VALUES ($1)", 1); err == nil {
			t.Error("a table that does not exist is no error")
		}
		_, err := tx.ExecContext(t.Context(), countEvents)
		if pgErr, ok := errors.AsType[*pgconn.PgError](err); !ok || pgErr.Code != "25P02" ||
			strings.Contains(err.Error(), e.ID) {
			t.Errorf("the next statement: %v", err)
		}
		if err := tx.try(event("k")); !errors.Is(err, core.ErrTxAborted) {
			t.Errorf("Publish: %v", err)
		}
		if err := tx.Commit(); err == nil {
			t.Error("an aborted transaction committed")
		}
		f.wantEvents(0)
	})
}

// spoiler ends a context when pgx is about to send a statement.
type spoiler struct {
	cancel atomic.Pointer[context.CancelFunc]
}

func (s *spoiler) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	if cancel := s.cancel.Swap(nil); cancel != nil {
		(*cancel)()
	}
	return ctx
}
func (*spoiler) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// late is a context whose end the driver sees, but database/sql does not yet see.
type late struct{ context.Context }

func (late) Err() error { return context.Canceled }

// The context of a statement ends before the events that the statement must see are sent. The
// server knows of no error, so the transaction can still commit. It commits with its events, or not
// at all.
func TestPgxContextEndsBeforeTheEventsAreSent(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, f *flights) {
		cfg, err := pgx.ParseConfig(f.db.DSN)
		fixture.NoError(t, err)
		var tracer spoiler
		cfg.Tracer = &tracer
		pool := f.connect(pgxoutbox.Config{Conn: *cfg}, 2)
		defer pool.Close()
		steps := map[string]func(ctx context.Context, tx txn) error{
			"Flush": func(ctx context.Context, tx txn) error { return sqltx.Flush(ctx, tx.own()) },
		}
		for _, query := range []string{"SAVEPOINT a", countEvents, "LOCK TABLE item"} {
			steps[query] = func(ctx context.Context, tx txn) error {
				_, err := tx.ExecContext(ctx, query)
				return err
			}
		}
		for name, step := range steps {
			for _, inPgx := range []bool{false, true} {
				e := event("k")
				tx := f.begin(pool, nil)
				tx.exec("INSERT INTO item (id) VALUES ($1)", f.n.Add(1))
				tx.publish(e)
				ctx, cancel := context.WithCancel(t.Context())
				if inPgx {
					tracer.cancel.Store(&cancel)
					err = step(ctx, tx)
				} else {
					err = step(late{ctx}, tx)
				}
				cancel()
				fixture.Check(t, errors.Is(err, context.Canceled), "%s, in pgx %t: %v", name, inPgx, err)
				commit := tx.Commit()
				if there := f.stored(e.ID); there == inPgx || there != (commit == nil) {
					t.Errorf("%s, in pgx %t: stored %t, Commit: %v", name, inPgx, there, commit)
				}
				fixture.Check(t, !inPgx || errors.Is(commit, core.ErrTxAborted),
					"%s, in pgx %t: Commit: %v", name, inPgx, commit)
			}
		}
		if items, events := fixture.Count(t, f.direct, "SELECT COUNT(*) FROM item"),
			fixture.Count(t, f.direct, countEvents); items != events {
			t.Errorf("%d rows and %d events have committed", items, events)
		}
	})
}

// Events must be sent while the rows of a query are open, which is refused. Later events of the
// same key still come after those events.
func TestPgxEventsThatCouldNotBeSentComeFirst(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, f *flights) {
		pool, _ := f.open(pgxoutbox.Config{})
		defer pool.Close()
		tx := f.begin(pool, nil)
		first, second := event("k"), event("k")
		tx.publish(first)
		rows, err := tx.QueryContext(t.Context(), "SELECT generate_series(1, 1000000)")
		fixture.NoError(t, err)
		defer rows.Close()
		if !rows.Next() {
			t.Fatal("no rows", rows.Err())
		}
		if _, err = tx.ExecContext(t.Context(), "SAVEPOINT a"); err == nil {
			t.Error("a savepoint while rows are open is no error")
		}
		fixture.NoError(t, rows.Close())
		tx.exec("SAVEPOINT a")
		tx.publish(second)
		fixture.NoError(t, tx.Commit())
		got := fixture.Query(t, f.direct, "SELECT event_id FROM outbox_event ORDER BY key_seq",
			func(r *sql.Rows) (id string, err error) { return id, r.Scan(&id) })
		if want := []string{first.ID, second.ID}; !slices.Equal(got, want) {
			t.Errorf("the key has %q, want %q", got, want)
		}
	})
}

// A mistake in the syntax of the first statement aborts the transaction. No later statement commits
// by itself.
func TestPgxFirstStatementFails(t *testing.T) {
	t.Parallel()
	for _, m := range modes {
		t.Run(m.String(), func(t *testing.T) {
			t.Parallel()
			f := newFlights(t, m)
			pool, _ := f.open(pgxoutbox.Config{})
			defer pool.Close()
			for n, first := range []func(tx txn) error{
				func(tx txn) error { _, err := tx.ExecContext(t.Context(), "SELEC 1"); return err },
				func(tx txn) error { _, err := tx.ExecContext(t.Context(), "SELEC $1", 1); return err },
				func(tx txn) error {
					_, err := tx.PrepareContext(t.Context(), "SELEC 1") //nolint:sqlclosecheck // it fails
					return err
				},
				func(tx txn) error { _, err := tx.ExecContext(t.Context(), "SELECT 1/0"); return err },
			} {
				for _, commit := range []bool{true, false} {
					tx := f.begin(pool, nil)
					pgErr, ok := errors.AsType[*pgconn.PgError](first(tx))
					fixture.Check(t, ok && (n >= 3 || pgErr.Position == 1), "%d: the first statement: %+v", n, pgErr)
					_, err := tx.ExecContext(t.Context(), "INSERT INTO item (id) VALUES ($1)", 1)
					if pgErr, ok := errors.AsType[*pgconn.PgError](err); !ok || pgErr.Code != "25P02" {
						t.Errorf("%d: the second statement: %v", n, err)
					}
					if commit {
						if err := tx.Commit(); err == nil {
							t.Errorf("%d: an aborted transaction committed", n)
						}
					} else {
						fixture.NoError(t, tx.Rollback())
					}
				}
			}
			if n := fixture.Count(t, f.direct, "SELECT COUNT(*) FROM item"); n != 0 {
				t.Errorf("%d rows of transactions that failed", n)
			}
		})
	}
}

// A transaction that ended before its first statement leaves no BEGIN behind.
func TestPgxTransactionWithoutStatements(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, f *flights) {
		pool, _ := f.open(pgxoutbox.Config{})
		defer pool.Close()
		for n, end := range []func(*sql.Tx) error{(*sql.Tx).Rollback, (*sql.Tx).Commit} {
			tx := f.begin(pool, nil)
			fixture.NoError(t, end(tx.Tx))
			_, err := pool.ExecContext(t.Context(), "INSERT INTO item (id) VALUES ($1)", n)
			fixture.NoError(t, err)
			if got := fixture.Count(t, f.direct, "SELECT COUNT(*) FROM item"); got != int64(n+1) {
				t.Errorf("%d rows, want %d", got, n+1)
			}
		}
		tx := f.begin(pool, nil)
		tx.publish(event("k"))
		fixture.NoError(t, tx.Rollback())
		tx = f.begin(pool, nil)
		fixture.NoError(t, tx.Commit())
		f.wantEvents(0)
	})
}

// Publish is refused at once if nothing can be written.
func TestPgxPublishIsRefused(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, f *flights) {
		pool, _ := f.open(pgxoutbox.Config{})
		defer pool.Close()
		tx := f.begin(pool, &sql.TxOptions{ReadOnly: true})
		pgErr, ok := errors.AsType[*pgconn.PgError](tx.try(event("k")))
		fixture.Check(t, ok && pgErr.Code == "25006", "in a transaction that only reads: %v", pgErr)
		fixture.NoError(t, tx.Rollback())
		for _, end := range []string{
			"\fCOMMIT", "COMMIT", "SELECT 1;\fROLLBACK", "INSERT INTO no_such_table VALUES (1)",
		} {
			for _, eager := range []bool{false, true} {
				tx := f.begin(pool, nil)
				tx.exec("INSERT INTO item (id) VALUES ($1)", f.n.Add(1))
				_, _ = tx.ExecContext(t.Context(), end)
				e := event("k")
				e.Eager = eager
				if err := tx.try(e); !errors.Is(err, core.ErrTxAborted) {
					t.Errorf("%q, eager %t: Publish: %v", end, eager, err)
				}
				_ = tx.Commit()
			}
		}
		f.wantEvents(0)
	})
}

// More events than one statement takes are written in several, and keep their order.
func TestPgxManyEvents(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, f *flights) {
		pool, _ := f.open(pgxoutbox.Config{})
		defer pool.Close()
		tx := f.begin(pool, nil)
		var want []string
		for _, size := range []int{1, 700, 600, 1100, 2} {
			var events []core.Event
			for range size {
				e := event("k")
				want, events = append(want, e.ID), append(events, e)
			}
			tx.publish(events...)
		}
		fixture.NoError(t, tx.Commit())
		got := fixture.Query(t, f.direct, "SELECT event_id FROM outbox_event ORDER BY key_seq",
			func(r *sql.Rows) (s string, err error) { return s, r.Scan(&s) })
		fixture.Check(t, slices.Equal(got, want), "%d events are stored, want %d in their order", len(got), len(want))
	})
}

// Two writers that use the same keys in opposite order do not cause a deadlock.
func TestPgxWritersInOppositeOrder(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, f *flights) {
		var pools []*sql.DB
		for range 2 {
			pool, _ := f.open(pgxoutbox.Config{})
			defer pool.Close()
			pools = append(pools, pool)
		}
		orders := [][]string{{"a", "b", "c"}, {"c", "b", "a"}}
		const rounds = 10
		for range rounds {
			var open []txn
			// Both have published two of their keys before one of them goes on. If Publish locked the
			// key, each writer would now wait for the other's first key.
			for n, keys := range orders {
				tx := f.begin(pools[n], nil)
				tx.publish(event(keys[0]))
				tx.publish(event(keys[1]))
				open = append(open, tx)
			}
			var writers sync.WaitGroup
			for n, tx := range open {
				writers.Go(func() {
					err := tx.try(event(orders[n][2]))
					if err == nil {
						err = tx.Commit()
					}
					if err != nil {
						t.Error(err)
					}
				})
			}
			writers.Wait()
			if t.Failed() {
				return
			}
		}
		f.wantEvents(rounds * 2 * 3)
	})
}
