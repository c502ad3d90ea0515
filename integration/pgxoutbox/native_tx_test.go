package pgxoutbox_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/adapters"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
	"github.com/ormoutbox/ormoutbox/pgxoutbox"
)

// world is a pool with an outbox.
type world struct {
	*testing.T
	pool *pgxoutbox.Pool
	ob   *core.Outbox
}

func newWorld(t *testing.T, change func(*pgxpool.Config)) *world {
	t.Helper()
	pool := adapters.OpenPGX(t, testdb.Postgres(t), change)
	w := &world{T: t, pool: pool, ob: adapters.PGXOutbox(t, pool, core.Config{})}
	w.exec("CREATE TABLE note (id INTEGER PRIMARY KEY)")
	return w
}

func (w *world) exec(query string) {
	w.Helper()
	if _, err := w.pool.Exec(w.Context(), query); err != nil {
		w.Fatalf("%s: %v", query, err)
	}
}

func (w *world) check(err error) {
	w.Helper()
	fixture.NoError(w, err)
}

func (w *world) begin() pgx.Tx {
	w.Helper()
	tx, err := w.pool.Begin(w.Context())
	w.check(err)
	return tx
}

// heard collects the outcomes that the publisher of an event hears.
type heard struct {
	id string

	mu       sync.Mutex
	outcomes []core.Outcome
}

func (h *heard) outcome() []core.Outcome {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.outcomes)
}

// publish records an event and listens for its outcome.
func (w *world) publish(tx pgx.Tx) (*heard, error) {
	w.Helper()
	e := core.Event{ID: core.NewEventID(), Type: "noted", Data: 1}
	ids, err := pgxoutbox.Publish(w.Context(), w.ob, tx, e)
	if err != nil {
		return nil, err
	}
	fixture.Check(w, slices.Equal(ids, []string{e.ID}), "Publish returned %q, want %q", ids, e.ID)
	own, err := pgxoutbox.TxOf(w.Context(), tx)
	w.check(err)
	h := &heard{id: e.ID}
	own.OnOutcome(func(o core.Outcome) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.outcomes = append(h.outcomes, o)
	})
	return h, nil
}

func (w *world) mustPublish(tx pgx.Tx) *heard {
	w.Helper()
	h, err := w.publish(tx)
	w.check(err)
	return h
}

// stored reports whether the event is in the table.
func (w *world) stored(h *heard) bool {
	w.Helper()
	var n int
	w.check(w.pool.QueryRow(w.Context(), "SELECT count(*) FROM outbox_event WHERE event_id = $1", h.id).Scan(&n))
	return n > 0
}

// want requires that o was heard, once, and checks whether the event is in the table.
func (w *world) want(h *heard, o core.Outcome, stored bool) {
	w.Helper()
	if got := h.outcome(); !slices.Equal(got, []core.Outcome{o}) {
		w.Errorf("heard %s, want %s", got, o)
	}
	if got := w.stored(h); got != stored {
		w.Errorf("stored: %t, want %t", got, stored)
	}
}

// step is something that a program does in a transaction of pgx.
type step struct {
	name string
	do   func(ctx context.Context, tx pgx.Tx) error
}

func exec(sql string, args ...any) step {
	return step{"Exec " + sql, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, sql, args...)
		return err
	}}
}

func query(sql string) step {
	return step{"Query " + sql, func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, sql)
		if err != nil {
			return err
		}
		for rows.Next() {
			if _, err := rows.Values(); err != nil {
				return err
			}
		}
		return rows.Err()
	}}
}

func queryRow(sql string) step {
	return step{"QueryRow " + sql, func(ctx context.Context, tx pgx.Tx) error {
		var v any
		if err := tx.QueryRow(ctx, sql).Scan(&v); !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		return nil
	}}
}

func batch(texts ...string) step {
	return step{"SendBatch", func(ctx context.Context, tx pgx.Tx) error {
		var b pgx.Batch
		for _, text := range texts {
			b.Queue(text)
		}
		return tx.SendBatch(ctx, &b).Close()
	}}
}

// prepare prepares a statement under a name. pgx executes it when it is given the name as a text.
func prepare(name, sql string) step {
	return step{"Prepare " + sql, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Prepare(ctx, name, sql)
		return err
	}}
}

// Statements of the usual kinds leave the commit certain, so the event takes the fast path.
func TestCommitIsHeardWhateverIsRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	for _, s := range [][]step{
		{exec("INSERT INTO note VALUES (1)")},
		{exec("-- name: AddNote :exec\nINSERT INTO note VALUES ($1)", 2)},
		{query("SELECT id FROM note"), queryRow("SELECT count(*) FROM note")},
		{exec("SET LOCAL lock_timeout = '1s'"), exec("LOCK TABLE note IN SHARE MODE")},
		{exec("DO $$ BEGIN PERFORM 1; END $$")},
		{batch("INSERT INTO note VALUES (3)", "SELECT 1", "DELETE FROM note WHERE id = 3")},
		{
			prepare("count_notes", "SELECT count(*) FROM note"), exec("count_notes"), query("count_notes"),
			queryRow("count_notes"),
		},
		{exec("SAVEPOINT a"), exec("INSERT INTO note VALUES (4)"), exec("ROLLBACK TO a"), exec("RELEASE a")},
		{batch("SAVEPOINT a", "INSERT INTO note VALUES (4)", "ROLLBACK TO a")},
		{query("SAVEPOINT a"), queryRow("ROLLBACK TO a")},
		{{"CopyFrom", func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.CopyFrom(ctx, pgx.Identifier{"note"}, []string{"id"}, pgx.CopyFromRows([][]any{{5}, {6}}))
			return err
		}}},
		{{"LargeObjects", func(ctx context.Context, tx pgx.Tx) error {
			lo := tx.LargeObjects()
			_, err := lo.Create(ctx, 0)
			return err
		}}},
		{{"nested", func(ctx context.Context, tx pgx.Tx) error {
			return pgx.BeginFunc(ctx, tx, func(sp pgx.Tx) error {
				_, err := sp.Exec(ctx, "INSERT INTO note VALUES (7)")
				return err
			})
		}}},
		{{"a statement that fails in a savepoint", func(ctx context.Context, tx pgx.Tx) error {
			err := pgx.BeginFunc(ctx, tx, func(sp pgx.Tx) error {
				_, err := sp.Exec(ctx, "INSERT INTO no_table VALUES (7)")
				return err
			})
			if err == nil {
				return errors.New("it did not fail")
			}
			return nil
		}}},
	} {
		t.Run(s[0].name, func(t *testing.T) {
			w := &world{T: t, pool: w.pool, ob: w.ob}
			tx := w.begin()
			defer tx.Rollback(t.Context())
			before := w.mustPublish(tx)
			for _, s := range s {
				if err := s.do(t.Context(), tx); err != nil {
					t.Fatalf("%s: %v", s.name, err)
				}
			}
			after := w.mustPublish(tx)
			w.check(tx.Commit(t.Context()))
			w.want(before, core.Committed, true)
			w.want(after, core.Committed, true)
		})
	}
}

// Statements as text end a transaction, or a part of it, without the knowledge of pgx. An event
// that is reported as committed is in the table. An event that is reported as rolled back is not.
func TestControlBehindTheBackOfPGX(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeSimpleProtocol} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode })
			for n, text := range []string{
				"ROLLBACK", "COMMIT", "\fROLLBACK", "\fCOMMIT", "--x\rROLLBACK", "/* /* */ */ ROLLBACK",
				"SELECT 1;\fROLLBACK", "SELECT 1;--\rCOMMIT", "COMMIT AND CHAIN", "/* /* */ */ ROLLBACK AND CHAIN",
				"ROLLBACK; BEGIN", "SELECT 1; ROLLBACK; BEGIN; SAVEPOINT here", "ROLLBACK TO here",
				"\fROLLBACK TO here", "SELECT 1; ROLLBACK TO here", "RELEASE here; SAVEPOINT here", "RELEASE here",
			} {
				name := fmt.Sprintf("control_%d", n) // a prepared statement stays on its connection
				single := func(run step) []step { return []step{run} }
				ways := map[string][]step{
					"Exec": single(exec(text)), "Query": single(query(text)), "QueryRow": single(queryRow(text)),
					"SendBatch":      single(batch(text)),
					"a longer batch": single(batch("SELECT 1", text, "SELECT 1")),
					"a broken batch": single(batch(text, "SELECT 1/0")),
					"prepared":       {prepare(name, text), exec(name)},
					"prepared query": {prepare(name, text), queryRow(name)},
					"prepared batch": {prepare(name, text), batch(name)},
					"Conn": single(step{"Conn", func(ctx context.Context, tx pgx.Tx) error {
						_, err := tx.Conn().Exec(ctx, text)
						return err
					}}),
				}
				for way, steps := range ways {
					t.Run(way+" "+text, func(t *testing.T) {
						(&world{T: t, pool: w.pool, ob: w.ob}).truthful(steps)
					})
				}
			}
		})
	}
}

// truthful runs steps in a transaction with events before and behind a savepoint, commits or rolls
// back, and compares what was heard with the table.
func (w *world) truthful(steps []step) {
	ctx, cancel := context.WithTimeout(w.Context(), 20*time.Second)
	defer cancel()
	for _, commit := range []bool{true, false} {
		tx := w.begin()
		all := []*heard{w.mustPublish(tx)}
		_, err := tx.Exec(ctx, "SAVEPOINT here")
		w.check(err)
		all = append(all, w.mustPublish(tx))
		var failed error
		for _, s := range steps {
			if failed = s.do(ctx, tx); failed != nil {
				break
			}
		}
		if h, err := w.publish(tx); err == nil {
			all = append(all, h)
		}
		var ended error
		if commit {
			ended = tx.Commit(ctx)
		}
		_ = tx.Rollback(ctx)
		missing := 0
		for n, h := range all {
			got, there := h.outcome(), w.stored(h)
			if len(got) != 1 || got[0] == core.Committed && !there || got[0] == core.RolledBack && there {
				w.Errorf("commit %t: event %d: heard %s, stored %t (%v, %v)", commit, n, got, there, failed, ended)
			}
			if !there {
				missing++
			}
		}
		fixture.Check(w, !commit || ended != nil || missing != len(all), "Commit returned nil, and nothing is there")
	}
}

// A transaction that was not begun on a Pool is not tracked: its events wait for the poller.
func TestTransactionFromElsewhere(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	ctx := t.Context()
	tx, err := w.pool.Pool.Begin(ctx)
	w.check(err)
	defer tx.Rollback(ctx)
	h := w.mustPublish(tx)
	if err := pgxoutbox.AfterCommit(ctx, tx, func() {}); !errors.Is(err, core.ErrUntracked) {
		t.Errorf("AfterCommit: %v", err)
	}
	w.check(tx.Commit(ctx))
	if !w.stored(h) || len(h.outcome()) > 0 {
		t.Errorf("stored %t, heard %s", w.stored(h), h.outcome())
	}
	var free bool
	w.check(w.pool.QueryRow(ctx, "SELECT lease_until IS NULL FROM outbox_event WHERE event_id = $1", h.id).Scan(&free))
	fixture.Check(t, free, "the poller does not claim the row, as if the fast path had it")
	if _, err := w.publish(tx); !errors.Is(err, core.ErrNoTransaction) && err == nil {
		t.Errorf("Publish after Commit: %v", err)
	}
}

// A statement as text has ended a transaction that pgxoutbox did not begin. An event would now
// commit by itself, so Publish refuses it.
func TestTransactionFromElsewhereEndedByText(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	ctx := t.Context()
	for text, want := range map[string]error{
		"COMMIT": core.ErrTxAborted, "SELECT 1;\fROLLBACK": core.ErrTxAborted, "SELECT 1/0": core.ErrTxAborted,
		"": core.ErrNoTransaction, // Rollback
	} {
		tx, err := w.pool.Pool.Begin(ctx)
		w.check(err)
		if text == "" {
			w.check(tx.Rollback(ctx))
		} else {
			_, _ = tx.Exec(ctx, text)
		}
		if _, err := w.publish(tx); !errors.Is(err, want) {
			t.Errorf("%q: Publish: %v, want %v", text, err, want)
		}
		_ = tx.Rollback(ctx)
	}
	var n int
	w.check(w.pool.QueryRow(ctx, "SELECT count(*) FROM outbox_event").Scan(&n))
	fixture.Check(t, n <= 0, "%d events were written outside of a transaction", n)
}

// wrapper is a pgx.Tx of another library, such as one for traces.
type wrapper struct{ pgx.Tx }

// A transaction of a Pool is found behind wrappers.
func TestTransactionBehindAWrapper(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	ctx := t.Context()
	tx := w.begin()
	h := w.mustPublish(wrapper{tx})
	sp, err := tx.Begin(ctx)
	w.check(err)
	lost := w.mustPublish(&wrapper{sp})
	w.check(sp.Rollback(ctx))
	w.check(tx.Commit(ctx))
	w.want(h, core.Committed, true)
	w.want(lost, core.RolledBack, false)
	if _, err := w.publish(wrapper{tx}); !errors.Is(err, core.ErrNoTransaction) {
		t.Errorf("Publish after Commit: %v", err)
	}
	if _, err := w.publish(nil); !errors.Is(err, core.ErrNoTransaction) {
		t.Errorf("Publish without a transaction: %v", err)
	}
}

// Commit and Rollback return the errors of pgx. Their outcome is certain if it can be.
func TestEndsOfTransactions(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *pgxpool.Config) { c.MaxConns = 1 }) // so that the test notices a lost connection
	ctx := t.Context()
	ended, cancel := context.WithCancel(ctx)
	cancel()
	pid := func(w *world) (pid uint32) {
		w.check(w.pool.AcquireFunc(ctx, func(c *pgxpool.Conn) error {
			pid = c.Conn().PgConn().PID()
			return nil
		}))
		return pid
	}
	for name, end := range map[string]func(w *world, tx pgx.Tx) core.Outcome{
		"twice": func(w *world, tx pgx.Tx) core.Outcome {
			early := tx.LargeObjects()
			w.check(tx.Commit(ctx))
			for _, err := range []error{tx.Commit(ctx), tx.Rollback(ctx)} {
				fixture.Check(w, errors.Is(err, pgx.ErrTxClosed), "the second end: %v", err)
			}
			if _, err := tx.Exec(ctx, "SELECT 1"); !errors.Is(err, pgx.ErrTxClosed) {
				w.Errorf("a statement after the end: %v", err)
			}
			for _, lo := range []pgx.LargeObjects{early, tx.LargeObjects()} {
				if _, err := lo.Create(ctx, 0); !errors.Is(err, pgx.ErrTxClosed) {
					w.Errorf("a large object after the end: %v", err)
				}
			}
			return core.Committed
		},
		"commit of an aborted transaction": func(w *world, tx pgx.Tx) core.Outcome {
			_, _ = tx.Exec(ctx, "SELECT 1/0")
			if _, err := w.publish(tx); !errors.Is(err, core.ErrTxAborted) {
				w.Errorf("Publish in an aborted transaction: %v", err)
			}
			if err := tx.Commit(ctx); !errors.Is(err, pgx.ErrTxCommitRollback) {
				w.Errorf("Commit: %v", err)
			}
			return core.RolledBack
		},
		"commit with an ended context": func(w *world, tx pgx.Tx) core.Outcome {
			if err := tx.Commit(ended); !errors.Is(err, context.Canceled) || errors.Is(err, core.ErrCommitUnknown) {
				w.Errorf("Commit: %v", err)
			}
			return core.RolledBack
		},
		"rollback with an ended context": func(w *world, tx pgx.Tx) core.Outcome {
			w.check(tx.Rollback(ended))
			return core.RolledBack
		},
		"rollback of a savepoint with an ended context": func(w *world, tx pgx.Tx) core.Outcome {
			sp, err := tx.Begin(ctx)
			w.check(err)
			lost := w.mustPublish(sp)
			w.check(sp.Rollback(ended))
			w.check(tx.Commit(ctx))
			w.want(lost, core.RolledBack, false)
			return core.Committed
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := &world{T: t, pool: w.pool, ob: w.ob}
			before := pid(w)
			tx := w.begin()
			h := w.mustPublish(tx)
			o := end(w, tx)
			w.want(h, o, o == core.Committed)
			if after := pid(w); after != before {
				t.Error("the connection was closed")
			}
		})
	}
	t.Run("rows are open", func(t *testing.T) {
		w := &world{T: t, pool: w.pool, ob: w.ob}
		tx := w.begin()
		h := w.mustPublish(tx)
		rows, err := tx.Query(ctx, "SELECT 1")
		w.check(err)
		if err := tx.Commit(ctx); err == nil {
			t.Error("Commit beside open rows returned nil")
		}
		rows.Close()
		w.want(h, core.RolledBack, false)
	})
}
