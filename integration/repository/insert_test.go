package repository_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

func openRepository(t *testing.T, db testdb.DB) (*sql.DB, *sqloutbox.Repository) {
	t.Helper()
	pool := db.Open(t)
	repo := fixture.NewRepository(t, pool, sqloutbox.Config{Dialect: db.Dialect})
	return pool, repo
}

func sqlRow(t testing.TB, topic, key string) core.NewRow {
	t.Helper()
	e := core.Event{
		ID: core.NewEventID(), Type: "t", Topic: topic, Key: key, OccurredAt: time.Now(),
		Payload: []byte("p"),
	}
	id, err := core.NewRowID(e.ID, topic)
	fixture.NoError(t, err)
	row := core.NewRow{ID: id, Event: e}
	if key != "" {
		row.KeyID = core.NewKeyID("", topic, key)
	}
	return row
}

// commitRows commits rows.
func commitRows(
	t *testing.T, pool *sql.DB, repo *sqloutbox.Repository, req core.InsertRequest,
) []core.Inserted {
	t.Helper()
	tx, err := sqltx.Begin(t.Context(), pool, nil, repo.Dialect())
	fixture.NoError(t, err)
	defer tx.Rollback()
	places, err := repo.Insert(t.Context(), tx, req)
	fixture.NoError(t, err)
	fixture.NoError(t, tx.Commit())
	return places
}

// scripted is an untracked transaction whose n-th statement fails before it is sent.
type scripted struct {
	core.Tx
	failAt, calls int
	err           error
}

func (s *scripted) fails() error {
	if s.calls++; s.calls == s.failAt {
		return s.err
	}
	return nil
}

func (s *scripted) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	if err := s.fails(); err != nil {
		return 0, err
	}
	return s.Tx.Exec(ctx, query, args...)
}

func (s *scripted) Query(ctx context.Context, query string, args ...any) (core.Rows, error) {
	if err := s.fails(); err != nil {
		return nil, err
	}
	return s.Tx.Query(ctx, query, args...)
}

// databaseError looks like the error of a driver to code that reads its number.
type databaseError struct {
	Number  uint16
	Message string
	state   string
}

func (e *databaseError) Error() string { return e.Message }

func (e *databaseError) SQLState() string { return e.state }

// Every statement of an insert is sent once, whichever statement fails and with whatever error.
func TestInsertRepeatsNothing(t *testing.T) {
	t.Parallel()
	testdb.Every(t, func(t *testing.T, db testdb.DB) {
		pool, repo := openRepository(t, db)
		rows := []core.NewRow{sqlRow(t, "topic", "a"), sqlRow(t, "topic", "b"), sqlRow(t, "topic", "")}
		for _, cause := range []error{
			&databaseError{Number: 1213, Message: "deadlock", state: "40P01"},
			&databaseError{Number: 1205, Message: "lock wait", state: "40001"},
			&databaseError{Number: 1020, Message: "changed", state: "40001"}, errors.New("connection lost"),
		} {
			for at := 1; ; at++ {
				tx, err := pool.BeginTx(t.Context(), nil)
				fixture.NoError(t, err)
				s := &scripted{Tx: sqltx.WrapTx(tx, db.Dialect, nil), failAt: at, err: cause}
				_, err = repo.Insert(t.Context(), s, core.InsertRequest{
					Node: "n", ClaimNo: 1, Lease: time.Second,
					Rows: rows,
				})
				if rerr := tx.Rollback(); rerr != nil {
					t.Fatal(rerr)
				}
				if s.calls < at { // every statement has failed once
					fixture.NoError(t, err)
					break
				}
				fixture.Must(t, errors.Is(err, cause) && s.calls == at,
					"statement %d failed with %v: Insert sent %d statements and returned %v", at, cause, s.calls, err)
				if aborted := errors.Is(err, core.ErrTxAborted); aborted != (cause.Error() != "connection lost") {
					t.Fatalf("%v: ErrTxAborted is %t", cause, aborted)
				}
			}
		}
	})
}

// deadlock makes the transaction on tx the victim of a deadlock over two rows of the table "victim"
// and ignores the error.
func deadlock(t *testing.T, pool *sql.DB, tx sqltx.Conn) {
	t.Helper()
	exec := func(c sqltx.Conn, query string) error {
		_, err := c.ExecContext(t.Context(), query)
		return err
	}
	other, err := pool.BeginTx(t.Context(), nil)
	fixture.NoError(t, err)
	defer other.Rollback()
	// The server rolls back the transaction that has changed fewer rows.
	for _, q := range []string{"UPDATE victim SET n = n + 1 WHERE id = 2", "UPDATE victim SET n = n + 1 WHERE id > 2"} {
		fixture.NoError(t, exec(other, q))
	}
	fixture.NoError(t, exec(tx, "UPDATE victim SET n = n + 1 WHERE id = 1"))
	blocked := make(chan error, 1)
	go func() { blocked <- exec(other, "UPDATE victim SET n = n + 1 WHERE id = 1") }()
	// One of the two transactions waits first, and the other one causes the deadlock.
	err = exec(tx, "UPDATE victim SET n = n + 1 WHERE id = 2")
	fixture.Must(t, err != nil && strings.Contains(err.Error(), "1213"), "the transaction was not the victim: %v", err)
	fixture.NoError(t, <-blocked)
}

func victimTable(t *testing.T, pool *sql.DB) {
	t.Helper()
	for _, q := range []string{
		"CREATE TABLE victim (id INT PRIMARY KEY, n INT NOT NULL) ENGINE = InnoDB",
		"INSERT INTO victim SELECT n, 0 FROM " + fixture.Numbers(200),
	} {
		if _, err := pool.ExecContext(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
}

// MariaDB and MySQL roll back the whole transaction of a deadlock's victim. If an application
// ignores the error, its later statements run outside of any transaction. The outbox must not write
// there.
func TestInsertAfterIgnoredDeadlock(t *testing.T) {
	t.Parallel()
	testdb.MariaDBAndMySQL(t, func(t *testing.T, db testdb.DB) {
		pool, repo := openRepository(t, db)
		victimTable(t, pool)
		insert := func(tx core.Tx, rows ...core.NewRow) error {
			_, err := repo.Insert(t.Context(), tx, core.InsertRequest{
				Node: "n", ClaimNo: 1, Lease: time.Second,
				Rows: rows,
			})
			return err
		}
		for name, rows := range map[string][]core.NewRow{
			"one unordered":     {sqlRow(t, "topic", "")},
			"several unordered": {sqlRow(t, "topic", ""), sqlRow(t, "topic", "")},
			"one ordered":       {sqlRow(t, "topic", "a")},
			"several ordered":   {sqlRow(t, "topic", "a"), sqlRow(t, "topic", "b")},
		} {
			t.Run(name, func(t *testing.T) {
				tx, err := pool.BeginTx(t.Context(), nil)
				fixture.NoError(t, err)
				untracked := sqltx.WrapTx(tx, core.MySQL, nil) // the outbox did not see the error
				fixture.NoError(t, insert(untracked, sqlRow(t, "topic", "a")))
				deadlock(t, pool, tx)
				if err := insert(untracked, rows...); !errors.Is(err, core.ErrTxAborted) {
					t.Errorf("an insert after the deadlock returned %v", err)
				}
				fixture.NoError(t, tx.Commit())
			})
		}
		t.Run("tracked", func(t *testing.T) {
			tx, err := sqltx.Begin(t.Context(), pool, nil, core.MySQL)
			fixture.NoError(t, err)
			defer tx.Rollback()
			deadlock(t, pool, tx)
			if err := insert(tx, sqlRow(t, "topic", "a")); !errors.Is(err, core.ErrTxAborted) {
				t.Errorf("an insert after the deadlock returned %v", err)
			}
		})
		if n := fixture.Count(t, pool,
			"SELECT (SELECT COUNT(*) FROM outbox_event) + (SELECT COUNT(*) FROM outbox_key)"); n != 0 {
			t.Errorf("%d rows of transactions that were rolled back", n)
		}
		// Without the guard, the same INSERT stays although its transaction is gone.
		tx, err := pool.BeginTx(t.Context(), nil)
		fixture.NoError(t, err)
		deadlock(t, pool, tx)
		const naive = "INSERT INTO outbox_event (id, event_id, event_type, topic, payload, available_at, " +
			"occurred_at, created_at) " +
			"VALUES (x'01', 'x', 't', 't', 'p', UTC_TIMESTAMP(6), UTC_TIMESTAMP(6), UTC_TIMESTAMP(6))"
		if _, err := tx.ExecContext(t.Context(), naive); err != nil {
			t.Fatal(err)
		}
		fixture.NoError(t, tx.Rollback())
		if n := fixture.Count(t, pool, "SELECT COUNT(*) FROM outbox_event"); n != 1 {
			t.Errorf("%d ghosts, want the one that shows why the guard is needed", n)
		}
	})
}

// A refused insert leaves key rows and events as they were. That holds also after earlier
// statements of the same call have succeeded.
func TestInsertDuplicateIsUndone(t *testing.T) {
	t.Parallel()
	testdb.Every(t, func(t *testing.T, db testdb.DB) {
		pool, repo := openRepository(t, db)
		known, busy := sqlRow(t, "topic", "known"), sqlRow(t, "topic", "busy")
		commit := func(rows ...core.NewRow) []core.Inserted {
			t.Helper()
			return commitRows(t, pool, repo, core.InsertRequest{Node: "n", ClaimNo: 1, Lease: time.Second, Rows: rows})
		}
		first := commit(known, busy)
		// Enough rows for several statements; the duplicate comes in the last of them.
		call := []core.NewRow{known}
		for range 1200 {
			call = append(call, sqlRow(t, "topic", ""))
		}
		call = append(call, sqlRow(t, "topic", "busy"), sqlRow(t, "topic", "new"))
		tx, err := sqltx.Begin(t.Context(), pool, nil, db.Dialect)
		fixture.NoError(t, err)
		_, err = repo.Insert(t.Context(), tx, core.InsertRequest{Node: "n", ClaimNo: 1, Lease: time.Second, Rows: call})
		fixture.Must(t, errors.Is(err, core.ErrDuplicateEvent) && !errors.Is(err, core.ErrTxAborted),
			"inserting a duplicate returned %v", err)
		if db.Dialect == core.Postgres {
			_ = tx.Rollback()
		} else if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		if n := fixture.Count(t, pool, "SELECT COUNT(*) FROM outbox_event"); n != 2 {
			t.Errorf("%d events, want 2", n)
		}
		if n := fixture.Count(t, pool, "SELECT COUNT(*) FROM outbox_key"); n != 2 {
			t.Errorf("%d keys, want 2", n)
		}
		next := commit(sqlRow(t, "topic", "busy"), sqlRow(t, "topic", "new"))
		if next[0].KeySeq != first[1].KeySeq+1 || next[0].Prev != busy.ID || !next[1].Opened {
			t.Errorf("after %+v came %+v", first[1], next)
		}
	})
}

// Concurrent producers of one key get numbers without gaps, and a lower number was committed before
// a higher one.
func TestInsertConcurrentProducers(t *testing.T) {
	t.Parallel()
	const producers, each = 6, 25
	testdb.Every(t, func(t *testing.T, db testdb.DB) {
		pool, repo := openRepository(t, db)
		var mu sync.Mutex
		var order []core.Inserted
		ids := map[core.RowID]int64{}
		var wg sync.WaitGroup
		failed := make(chan error, producers)
		for p := range producers {
			wg.Go(func() {
				for i := 0; i < each; i++ {
					row := sqlRow(t, "topic", "k")
					tx, err := sqltx.Begin(t.Context(), pool, nil, db.Dialect)
					if err != nil {
						failed <- err
						return
					}
					places, err := repo.Insert(t.Context(), tx,
						core.InsertRequest{Node: "n", ClaimNo: 1, Lease: time.Second, Rows: []core.NewRow{row}})
					if err != nil || (p+i)%5 == 0 {
						_ = tx.Rollback()
						switch {
						case errors.Is(err, core.ErrTxAborted):
							// InnoDB: transactions that waited for a new key may deadlock when the
							// key is rolled back
							i--
						case err != nil:
							failed <- err
							return
						}
						continue
					}
					mu.Lock() // taken under the row lock, so the slice is in the order of commits
					order = append(order, places[0])
					ids[row.ID] = places[0].KeySeq
					err = tx.Commit()
					mu.Unlock()
					if err != nil {
						failed <- err
						return
					}
				}
			})
		}
		wg.Wait()
		close(failed)
		for err := range failed {
			t.Fatal(err)
		}
		for i, place := range order[1:] {
			if place.KeySeq != order[i].KeySeq+1 || ids[place.Prev] != order[i].KeySeq || place.Opened {
				t.Fatalf("after %+v came %+v", order[i], place)
			}
		}
		if !order[0].Opened {
			t.Errorf("the first row did not open the key: %+v", order[0])
		}
	})
}

// The time zone of a session changes neither the stored times, nor the due events, nor the times
// that are read back.
func TestSessionTimeZone(t *testing.T) {
	t.Parallel()
	for _, zone := range []string{"UTC", "Asia/Tokyo", "-09:30"} {
		t.Run(zone, func(t *testing.T) {
			for _, db := range []testdb.DB{testdb.Postgres(t), testdb.MariaDB(t)} {
				t.Run(db.Name, func(t *testing.T) {
					offset := map[string]string{"UTC": "+00:00", "Asia/Tokyo": "+09:00", "-09:30": "-09:30"}[zone]
					if db.Dialect == core.Postgres {
						db.DSN += "&timezone=" + zone
					} else {
						db.DSN += "&time_zone=%27" + strings.ReplaceAll(strings.ReplaceAll(offset, "+", "%2B"), ":",
							"%3A") + "%27"
					}
					pool, repo := openRepository(t, db)
					occurred := time.Date(2024, 3, 10, 2, 30, 15, 123456000, time.FixedZone("x", 3*3600))
					due, late := sqlRow(t, "topic", ""), sqlRow(t, "topic", "")
					due.Event.OccurredAt, late.Event.Delay = occurred, time.Hour
					commitRows(t, pool, repo, core.InsertRequest{Rows: []core.NewRow{due, late}})
					rows, err := repo.ClaimUnordered(t.Context(), core.ClaimRequest{
						Node: "n", ClaimNo: 1, Lease: time.Minute, MaxLease: time.Hour, Limit: 10, MaxBytes: 1 << 20,
					})
					fixture.Must(t, err == nil && len(rows) == 1 && rows[0].ID == due.ID, "claimed %+v, %v", rows, err)
					if !rows[0].Event.OccurredAt.Equal(occurred) || rows[0].Age < 0 || rows[0].Age > time.Minute {
						t.Errorf("occurred at %s, age %s", rows[0].Event.OccurredAt, rows[0].Age)
					}
					d, ok, err := repo.NextDue(t.Context(), core.ClaimRequest{MaxLease: time.Hour, Keys: 10})
					fixture.Check(t, err == nil && ok && d <= time.Minute, "next due in %s, %t, %v", d, ok, err)
				})
			}
		})
	}
}

// An insert in chunks does not change the other writes of the transaction, and large calls keep the
// order of keys.
func TestInsertManyRows(t *testing.T) {
	t.Parallel()
	testdb.Every(t, func(t *testing.T, db testdb.DB) {
		pool, repo := openRepository(t, db)
		var rows []core.NewRow
		for i := range 3000 {
			key := fmt.Sprint("key", i%3)
			if i%4 == 0 {
				key = ""
			}
			rows = append(rows, sqlRow(t, "topic", key))
			if i%500 == 0 {
				rows[i].Event.Payload = make([]byte, 1<<20)
			}
		}
		places := commitRows(t, pool, repo, core.InsertRequest{Rows: rows})
		type end struct {
			seq int64
			id  core.RowID
		}
		ends := map[core.KeyID]end{}
		for i, p := range places {
			if rows[i].KeyID.IsZero() {
				fixture.Must(t, p == (core.Inserted{}), "an unordered row got %+v", p)
				continue
			}
			before, known := ends[rows[i].KeyID]
			if known && (p.KeySeq != before.seq+1 || p.Prev != before.id || p.Opened) || !known && !p.Opened {
				t.Fatalf("after %+v came %+v", before, p)
			}
			ends[rows[i].KeyID] = end{p.KeySeq, rows[i].ID}
		}
		if n := fixture.Count(t, pool, "SELECT COUNT(*) FROM outbox_event"); n != int64(len(rows)) {
			t.Errorf("%d rows, want %d", n, len(rows))
		}
		req := core.ClaimRequest{
			Node: "n", ClaimNo: 1, Lease: time.Minute, MaxLease: time.Hour, Limit: 5000, MaxBytes: 1 << 30,
			Run: 5000, Keys: 10,
		}
		got, _, err := repo.ClaimHeads(t.Context(), req, core.KeyID{})
		fixture.NoError(t, err)
		var want []core.RowID
		for i := range rows {
			if !rows[i].KeyID.IsZero() {
				want = append(want, rows[i].ID)
			}
		}
		fixture.Check(t, len(got) == len(want), "claimed %d rows, want %d", len(got), len(want))
		for _, c := range got {
			fixture.Must(t, slices.Contains(want, c.ID), "claimed row %s", c.ID)
		}
	})
}
