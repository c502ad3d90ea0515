package outboxtest_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

// insert writes one ordered row for the key and returns its place.
func insert(ctx context.Context, r *outboxtest.Repository, tx core.Tx, key string) (core.Inserted, error) {
	e := core.Event{ID: core.NewEventID(), Type: "t", Topic: "topic", Key: key, OccurredAt: time.Now()}
	id, err := core.NewRowID(e.ID, e.Topic)
	if err != nil {
		return core.Inserted{}, err
	}
	places, err := r.Insert(ctx, tx,
		core.InsertRequest{Rows: []core.NewRow{{ID: id, Event: e, KeyID: core.NewKeyID("", e.Topic, key)}}})
	if err != nil {
		return core.Inserted{}, err
	}
	return places[0], nil
}

func begin(t *testing.T, r *outboxtest.Repository) *outboxtest.Tx {
	t.Helper()
	tx, err := r.Begin(t.Context())
	must(t, err)
	return tx
}

func TestKeyLockIsHeldUntilTheEndInsideABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := outboxtest.NewRepository()
		first := begin(t, r)
		a, err := insert(t.Context(), r, first, "k")
		must(t, err)
		type result struct {
			at  core.Inserted
			err error
		}
		done := make(chan result, 1)
		second := begin(t, r)
		go func() {
			at, err := insert(t.Context(), r, second, "k")
			done <- result{at, err}
		}()
		synctest.Wait()
		select {
		case <-done:
			t.Fatal("the second transaction did not wait for the key")
		default:
		}
		must(t, first.Commit())
		b := <-done
		if b.err != nil || b.at.KeySeq != a.KeySeq+1 || b.at.Opened {
			t.Fatalf("second place %+v, %v; first %+v", b.at, b.err, a)
		}
		must(t, second.Rollback())
	})
}

func TestWaitingForAKeyEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := outboxtest.NewRepository()
		first := begin(t, r)
		must(t, errOf(insert(t.Context(), r, first, "k")))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		wantErr(t, errOf(insert(ctx, r, begin(t, r), "k")), context.DeadlineExceeded, "insert while the key is locked")
	})
}

func TestDeadlockHasAVictim(t *testing.T) {
	for _, d := range []core.Dialect{core.Postgres, core.MySQL, core.SQLite} {
		t.Run(string(d), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := outboxtest.NewRepository(outboxtest.WithDialect(d))
				one, two := begin(t, r), begin(t, r)
				for tx, key := range map[*outboxtest.Tx]string{one: "a", two: "b"} {
					must(t, errOf(insert(t.Context(), r, tx, key)))
				}
				done := make(chan error, 1)
				go func() {
					_, err := insert(t.Context(), r, one, "b")
					done <- err
				}()
				synctest.Wait()
				if _, err := insert(t.Context(), r, two, "a"); err == nil {
					t.Fatal("no victim")
				}
				if _, err := insert(t.Context(), r, two, "c"); err == nil {
					t.Fatal("the victim goes on")
				}
				_ = two.Rollback()
				must(t, <-done)
				must(t, one.Commit())
				if n := len(r.Rows()); n != 2 {
					t.Fatalf("%d rows, want those of the winner", n)
				}
			})
		})
	}
}

func TestCommitFaults(t *testing.T) {
	for _, tt := range []struct {
		fault   outboxtest.CommitFault
		outcome core.Outcome
		unknown bool
		rows    int
	}{
		{outboxtest.CommitSucceeds, core.Committed, false, 1},
		{outboxtest.CommitRefused, core.RolledBack, false, 0},
		{outboxtest.CommitAnswerLost, core.Unknown, true, 1},
		{outboxtest.CommitNotSent, core.Unknown, true, 0},
	} {
		for _, d := range []core.Dialect{core.Postgres, core.MySQL, core.SQLite} {
			r := outboxtest.NewRepository(outboxtest.WithDialect(d))
			r.FailCommit(tt.fault)
			tx := begin(t, r)
			must(t, errOf(insert(t.Context(), r, tx, "k")))
			var heard []core.Outcome
			tx.OnOutcome(func(o core.Outcome) { heard = append(heard, o) })
			err := tx.Commit()
			if (err == nil) != (tt.fault == outboxtest.CommitSucceeds) ||
				errors.Is(err, core.ErrCommitUnknown) != tt.unknown {
				t.Errorf("%s, fault %d: Commit: %v", d, tt.fault, err)
			}
			if len(heard) != 1 || heard[0] != tt.outcome {
				t.Errorf("%s, fault %d: heard %v, want %s once", d, tt.fault, heard, tt.outcome)
			}
			equal(t, len(r.Rows()), tt.rows, "%s, fault %d: rows", d, tt.fault)
		}
	}
}

func TestClock(t *testing.T) {
	now := time.Date(2030, 1, 2, 3, 4, 5, 6789, time.UTC)
	r := outboxtest.NewRepository(outboxtest.WithClock(func() time.Time { return now }))
	commit := func() outboxtest.Row {
		t.Helper()
		tx := begin(t, r)
		must(t, errOf(insert(t.Context(), r, tx, "")))
		must(t, tx.Commit())
		rows := r.Rows()
		return rows[len(rows)-1]
	}
	if got, want := commit().CreatedAt, now.Truncate(time.Microsecond); !got.Equal(want) {
		t.Errorf("created at %s, want %s", got, want)
	}
	r.ShiftClock(time.Hour)
	r.ShiftClock(-time.Minute)
	b, err := r.Backlog(t.Context(), 10)
	if err != nil || b.OldestAge != 59*time.Minute {
		t.Errorf("age %s, %v", b.OldestAge, err)
	}
}

func TestRowsAreCopies(t *testing.T) {
	r := outboxtest.NewRepository()
	tx := begin(t, r)
	must(t, errOf(insert(t.Context(), r, tx, "k")))
	if len(r.Rows()) != 0 || r.Keys() != 1 {
		t.Errorf("%d rows and %d keys before the commit", len(r.Rows()), r.Keys())
	}
	must(t, tx.Commit())
	row := r.Rows()[0]
	row.Status, row.Event.Payload = outboxtest.StatusDead, []byte("x")
	if same, ok := r.Row(row.ID); !ok || same.Status != outboxtest.StatusNew || len(same.Event.Payload) != 0 {
		t.Errorf("the table shows %+v", same)
	}
	if _, ok := r.Row(core.RowID{}); ok {
		t.Error("a row without an id")
	}
}

func TestUntrackedTransaction(t *testing.T) {
	ob := outboxtest.NewOutbox(t, core.Config{})
	tx := begin(t, ob.Repository)
	must(t, errOf(ob.Publish(t.Context(), tx.Untracked(), core.Event{Type: "t"})))
	must(t, tx.Commit())
	must(t, ob.Drain(t.Context()))
	outboxtest.RequirePublished(t, ob.Publisher, outboxtest.Match{Type: "t"})
}

func TestForeignTransactionsAreRefused(t *testing.T) {
	r := outboxtest.NewRepository()
	unheard := struct{ core.Tx }{begin(t, outboxtest.NewRepository()).Untracked()}
	for _, tx := range []core.Tx{begin(t, outboxtest.NewRepository()), unheard} {
		if _, err := insert(t.Context(), r, tx, "k"); err == nil {
			t.Errorf("inserted in a %T", tx)
		}
	}
	type wrapped struct{ *outboxtest.Tx }
	if _, err := insert(t.Context(), r, wrapped{begin(t, r)}, "k"); err != nil {
		t.Errorf("a type that embeds *Tx: %v", err)
	}
}

// A Repository accepts a transaction of an ORM. The rows exist once that transaction has committed.
func TestTransactionsOfOthers(t *testing.T) {
	db, err := outboxtest.OpenDB(core.Postgres)
	must(t, err)
	defer db.Close()
	ob := outboxtest.NewOutbox(t, core.Config{})
	publish := func(tx *sql.Tx, types ...string) {
		own, err := sqltx.TxOf(t.Context(), tx)
		must(t, err)
		for _, typ := range types {
			must(t, errOf(ob.Publish(t.Context(), own, core.Event{Type: typ, Key: "k", Topic: "t"})))
		}
	}
	for _, commit := range []bool{false, true} {
		tx, err := db.BeginTx(t.Context(), nil)
		must(t, err)
		publish(tx, fmt.Sprint("kept.", commit))
		must(t, errOf(tx.ExecContext(t.Context(), "SAVEPOINT s")))
		publish(tx, "dropped")
		must(t, errOf(tx.ExecContext(t.Context(), "ROLLBACK TO SAVEPOINT s")))
		equal(t, len(ob.Repository.Rows()), 0, "rows before the commit")
		end := tx.Rollback
		if commit {
			end = tx.Commit
		}
		must(t, end())
	}
	rows := ob.Repository.Rows()
	if len(rows) != 1 || rows[0].Event.Type != "kept.true" {
		t.Errorf("rows %+v", rows)
	}
}

func TestStatements(t *testing.T) {
	var seen []string
	reason := errors.New("reason")
	r := outboxtest.NewRepository(outboxtest.WithExec(func(query string, args []any) (int64, error) {
		if query == "bad" {
			return 0, reason
		}
		seen = append(seen, fmt.Sprint(query, args))
		return 3, nil
	}))
	tx := begin(t, r)
	if n, err := tx.Exec(t.Context(), "UPDATE x", 1, "two"); n != 3 || err != nil || len(seen) != 1 ||
		seen[0] != "UPDATE x[1 two]" {
		t.Errorf("%d, %v, seen %q", n, err, seen)
	}
	rows, err := tx.Query(t.Context(), "SELECT 1")
	if err != nil || rows.Next() || rows.Err() != nil || rows.Close() != nil {
		t.Errorf("query: %v", err)
	}
	wantErr(t, errOf(tx.Query(t.Context(), "bad")), reason, "bad")
	if _, err := tx.Exec(t.Context(), "UPDATE y"); err == nil || len(seen) != 2 {
		t.Errorf("a statement after an error on PostgreSQL: %v, seen %q", err, seen)
	}
	if tx.Commit() == nil {
		t.Error("an aborted transaction commits")
	}
	wantErr(t, tx.Rollback(), sql.ErrTxDone, "Rollback after the end")
}

func TestNewOutboxRefusesAnotherRepository(t *testing.T) {
	faulty := outboxtest.NewFaultyRepository(outboxtest.NewRepository())
	for want, cfg := range map[string]core.Config{
		"leave it nil or give a *outboxtest.Repository": {Repository: faulty},
		"Workers is negative":                           {Relay: relay.Config{Workers: -1}},
	} {
		if got := fails(t, func(tb testing.TB) { tb.Helper(); outboxtest.NewOutbox(tb, cfg) }); !strings.Contains(got,
			want) {
			t.Errorf("failed with %q, want %q", got, want)
		}
	}
	p := &outboxtest.Publisher{}
	if ob := outboxtest.NewOutbox(t, core.Config{
		Repository: outboxtest.NewRepository(),
		Publisher:  p, Relay: relay.Config{},
	}); ob.Publisher != p {
		t.Error("the publisher of the Config is not that of the Outbox")
	}
}

// must ends the test if err is not nil.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// noError fails the test if err is not nil, and goes on. Goroutines of a test may call it.
func noError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// wantErr fails the test unless err is the target. The rest says what was tried.
func wantErr(t testing.TB, err, target error, format string, args ...any) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Errorf("%s: %v, want %v", fmt.Sprintf(format, args...), err, target)
	}
}

// equal fails the test unless got is want. The rest says of what.
func equal[T comparable](t testing.TB, got, want T, format string, args ...any) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", fmt.Sprintf(format, args...), got, want)
	}
}

// errOf returns the error of a call whose result does not matter.
func errOf[T any](_ T, err error) error { return err }
