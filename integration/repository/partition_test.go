package repository_test

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest/suite"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/longtest"
	"github.com/ormoutbox/ormoutbox/integration/internal/sqlpause"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

const day = 24 * time.Hour

// The repository suite over a table with partitions. Some of them have only the ids of a moment, so
// that the rows of a case are in several partitions, and have the same addresses there. These
// partitions end during the case. They are in a schema of their own, whose partitions the janitor
// does not drop: it would not count the rows as deleted.
func TestPartitionedRepositorySuite(t *testing.T) {
	longtest.Mark(t)
	t.Parallel()
	testdb.EachPostgres(t, func(t *testing.T, db testdb.DB) {
		db.Wrap = sqlpause.Connector
		pool := db.Open(t)
		fixture.MustExec(t, pool, "CREATE SCHEMA moments")
		var cases atomic.Int64
		suite.TestRepository(t, suite.RepositoryHarness{
			New: func(t *testing.T) suite.Backend {
				cfg := sqloutbox.Config{
					Dialect: db.Dialect, Prefix: fmt.Sprintf("c%d_", cases.Add(1)), PartitionEvery: day,
				}
				files, err := sqloutbox.Migrations(cfg)
				fixture.NoError(t, err)
				for _, f := range files {
					fixture.MustExec(t, pool, f.Up)
				}
				const moment = 30 * time.Millisecond
				first := time.Now().Add(10 * time.Millisecond)
				for n := range 4 {
					from := first.Add(time.Duration(2*n) * moment)
					attachPartition(t, pool, cfg.Prefix, fmt.Sprintf("moments.%s%d", cfg.Prefix, n), from, moment)
				}
				return fixture.SuiteBackend(t, pool, cfg)
			},
			AbortsOnError: true,
		})
	})
}

// partitionBound returns the first row id of a time.
func partitionBound(t time.Time) string {
	var id core.RowID
	binary.BigEndian.PutUint64(id[:], uint64(t.UnixMilli())<<16)
	return id.String()
}

// addPartition makes a partition as a person would.
func addPartition(t *testing.T, pool *sql.DB, prefix string, from time.Time, d time.Duration) (name string) {
	t.Helper()
	name = fmt.Sprintf("%sevent_at_%d", prefix, from.UnixMilli())
	attachPartition(t, pool, prefix, name, from, d)
	return name
}

func attachPartition(t *testing.T, pool *sql.DB, prefix, name string, from time.Time, d time.Duration) {
	t.Helper()
	fixture.MustExec(t, pool, fmt.Sprintf("CREATE TABLE %s (LIKE %sevent INCLUDING ALL)", name, prefix))
	fixture.MustExec(t, pool, fmt.Sprintf("ALTER TABLE %sevent ATTACH PARTITION %s FOR VALUES FROM ('%s') TO ('%s')",
		prefix, name, partitionBound(from), partitionBound(from.Add(d))))
}

func openPartitioned(t *testing.T, db testdb.DB) (*sql.DB, *sqloutbox.Repository) {
	t.Helper()
	pool := db.Open(t)
	repo := partitionedOn(t, pool)
	fixture.NoError(t, repo.Migrate(t.Context()))
	return pool, repo
}

// partitionedOn returns the repository of another process on the same tables.
func partitionedOn(t *testing.T, pool *sql.DB) *sqloutbox.Repository {
	t.Helper()
	repo, err := sqloutbox.New(pool, sqloutbox.Config{Dialect: core.Postgres, PartitionEvery: day})
	fixture.NoError(t, err)
	return repo
}

// partitionsOf returns the names of the partitions, in the order of their ids, and of detached
// tables.
func partitionsOf(t *testing.T, pool *sql.DB) (names []string) {
	t.Helper()
	return fixture.Query(t, pool, `SELECT c.relname FROM pg_class c LEFT JOIN pg_inherits i ON i.inhrelid = c.oid
WHERE i.inhparent = 'outbox_event'::regclass OR c.relkind = 'r' AND c.relname LIKE 'outbox_event_drop_%'
ORDER BY pg_get_expr(c.relpartbound, c.oid) COLLATE "C"`, func(r *sql.Rows) (name string, err error) {
		return name, r.Scan(&name)
	})
}

// rowAt returns a row whose id has a time.
func rowAt(t testing.TB, at time.Time, topic, key string) core.NewRow {
	t.Helper()
	row := sqlRow(t, topic, key)
	row.Event.ID = uuid7(at)
	var err error
	if row.ID, err = core.NewRowID(row.Event.ID, topic); err != nil {
		t.Fatal(err)
	}
	return row
}

func insertRows(ctx context.Context, pool *sql.DB, repo *sqloutbox.Repository, rows ...core.NewRow) error {
	tx, err := sqltx.Begin(ctx, pool, nil, repo.Dialect())
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	req := core.InsertRequest{Node: "n", ClaimNo: 1, Lease: time.Hour, Rows: rows}
	if _, err = repo.Insert(ctx, tx, req); err != nil {
		return err
	}
	return tx.Commit()
}

// janitor calls Cleanup often enough even if a slow machine gets little done in each call.
func janitor(t *testing.T, repo *sqloutbox.Repository) {
	t.Helper()
	for range 6 {
		if _, _, err := repo.Cleanup(t.Context(), cleanupOf(retention, 100)); err != nil {
			t.Fatal(err)
		}
	}
}

// finish marks rows as done, as if that had been some time ago.
func finish(t *testing.T, pool *sql.DB, repo *sqloutbox.Repository, ago time.Duration, rows ...core.NewRow) {
	t.Helper()
	for _, row := range rows {
		if n, err := repo.MarkDone(t.Context(), []core.Done{{ID: row.ID}}, false); n != 1 || err != nil {
			t.Fatalf("%d rows marked, %v", n, err)
		}
		fixture.MustExec(t, pool, fmt.Sprintf("UPDATE outbox_event SET done_at = done_at - interval '%d seconds' "+
			"WHERE id = '%s'", int(ago.Seconds()), row.ID))
	}
}

func mustInsert(t *testing.T, pool *sql.DB, repo *sqloutbox.Repository, rows ...core.NewRow) {
	t.Helper()
	fixture.NoError(t, insertRows(t.Context(), pool, repo, rows...))
}

// tableOf returns the partition that has a row.
func tableOf(t *testing.T, pool *sql.DB, row core.NewRow) (name string) {
	t.Helper()
	err := pool.QueryRowContext(t.Context(), "SELECT tableoid::regclass::text FROM outbox_event "+
		"WHERE id = $1::text::uuid",
		row.ID.String()).Scan(&name)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		t.Fatal(err)
	}
	return name
}

// Migrate makes the partition of today and the next three. If another tool has applied the files,
// the janitor makes them. It leaves the rows of the default partition there.
func TestPartitionsAreThereBeforeTheirTime(t *testing.T) {
	t.Parallel()
	testdb.EachPostgres(t, func(t *testing.T, db testdb.DB) {
		pool, repo := openPartitioned(t, db)
		today := time.Now().UTC().Truncate(day)
		var want []string
		for n := range 4 {
			want = append(want, "outbox_event_p"+today.Add(time.Duration(n)*day).Format("20060102"))
		}
		for range 2 {
			if got := partitionsOf(t, pool); !slices.Equal(got, append([]string{"outbox_event_default"}, want...)) {
				t.Fatalf("partitions %q, want a default one and %q", got, want)
			}
			if _, _, err := repo.Cleanup(t.Context(), cleanupOf(retention, 10)); err != nil {
				t.Fatal(err)
			}
			fixture.NoError(t, repo.Check(t.Context()))
		}
		now, random := rowAt(t, time.Now(), "t", "k"), sqlRow(t, "t", "")
		random.ID = core.RowID([]byte("\xf0random-random-r"))
		mustInsert(t, pool, repo, now, random)
		if got := tableOf(t, pool, now); got != want[0] && got != want[1] {
			t.Errorf("an event of now is in %q", got)
		}
		if got := tableOf(t, pool, random); got != "outbox_event_default" {
			t.Errorf("an event with a random id is in %q", got)
		}
		fixture.MustExec(t, pool, "DROP TABLE "+strings.Join(want, ", "))
		ahead := rowAt(t, today.Add(2*day+time.Hour), "t", "") // the clock of this process is wrong
		mustInsert(t, pool, repo, ahead, rowAt(t, time.Now(), "t", ""))
		if _, _, err := partitionedOn(t, pool).Cleanup(t.Context(), cleanupOf(retention, 10)); err != nil {
			t.Fatal(err)
		}
		got := partitionsOf(t, pool)
		for _, name := range []string{want[1], want[2] + "t010100", want[3]} {
			if !slices.ContainsFunc(got, func(n string) bool { return strings.HasPrefix(n, name[:len(name)-2]) }) {
				t.Errorf("partitions %q, want one like %s", got, name)
			}
		}
		if got := tableOf(t, pool, ahead); got != "outbox_event_default" {
			t.Errorf("the event of a wrong clock is in %q", got)
		}
	})
}

// A partition whose events all ended before the retention is dropped. A partition with an event
// that is open, delayed, leased, dead or young stays until that event has ended.
func TestPartitionsAreDropped(t *testing.T) {
	t.Parallel()
	claim := func(row core.NewRow) core.ClaimRef { return core.ClaimRef{ID: row.ID, ClaimNo: 1} }
	testdb.EachPostgres(t, func(t *testing.T, db testdb.DB) {
		pool, repo := openPartitioned(t, db)
		month := time.Now().UTC().Truncate(day).Add(-30 * day)
		whole := partitionsOf(t, pool)
		last := map[string]core.NewRow{}
		names := map[string]string{}
		for n, state := range []string{
			"empty", "done", "open", "open with a key", "delayed", "leased", "dead", "dead with a key", "young",
		} {
			from := month.Add(time.Duration(n) * day)
			names[state] = addPartition(t, pool, "outbox_", from, day)
			if state == "empty" {
				continue
			}
			for i := range 3 {
				row := rowAt(t, from.Add(time.Duration(i+1)*time.Hour), "t", "")
				mustInsert(t, pool, repo, row)
				finish(t, pool, repo, retention+time.Hour, row)
			}
			key := ""
			if strings.HasSuffix(state, "key") {
				key = state
			}
			row := rowAt(t, from.Add(2*time.Hour), "t", key)
			row.Hot = state == "leased" || strings.HasPrefix(state, "dead")
			if state == "delayed" {
				row.Event.Delay = time.Hour
			}
			mustInsert(t, pool, repo, row)
			switch {
			case state == "done":
				finish(t, pool, repo, retention+time.Minute, row)
			case state == "young":
				finish(t, pool, repo, retention-time.Minute, row)
			case strings.HasPrefix(state, "dead"):
				f := core.Failure{ClaimRef: claim(row), Kind: core.FailDead, Code: "c"}
				if ok, err := repo.MarkFailed(t.Context(), "n", []core.Failure{f}); err != nil || !ok[0] {
					t.Fatal(ok, err)
				}
			}
			last[state] = row
		}
		for range 3 {
			janitor(t, repo)
			got := partitionsOf(t, pool)
			for state, name := range names {
				if kept := state != "empty" && state != "done"; slices.Contains(got, name) != kept {
					t.Fatalf("partition %q is there: %v, want %v", state, !kept, kept)
				}
			}
			for state, row := range last {
				if there := tableOf(t, pool, row) != ""; there != (state != "done") {
					t.Fatalf("the event %q is there: %v", state, there)
				}
			}
		}
		for state, row := range last {
			switch state {
			case "done":
			case "young":
				fixture.MustExec(t, pool, "UPDATE outbox_event SET done_at = done_at - interval '1 hour' WHERE id = '"+
					row.ID.String()+"'")
			default:
				finish(t, pool, repo, retention+time.Hour, row)
			}
		}
		janitor(t, partitionedOn(t, pool))
		if got := partitionsOf(t, pool); !slices.Equal(got, whole) {
			t.Errorf("partitions %q, want %q", got, whole)
		}
		if n := fixture.Count(t, pool, "SELECT count(*) FROM outbox_event"); n != 0 {
			t.Errorf("%d rows are left", n)
		}
	})
}

// A partition that one event needs for long is emptied row by row, as the default partition is.
func TestPartitionThatStaysIsEmptied(t *testing.T) {
	t.Parallel()
	testdb.EachPostgres(t, func(t *testing.T, db testdb.DB) {
		pool, repo := openPartitioned(t, db)
		from := time.Now().UTC().Truncate(day).Add(-30 * day)
		name := addPartition(t, pool, "outbox_", from, day)
		justOver := time.Now().UTC().Truncate(day).Add(-8 * day)
		recent := addPartition(t, pool, "outbox_", justOver, day)
		var old []core.NewRow
		for i := range 40 {
			row := rowAt(t, from.Add(time.Duration(i)*time.Minute), "t", "")
			if i%2 == 0 {
				row = rowAt(t, time.Unix(0, 0), "t", "") // in the default partition
			}
			old = append(old, row)
		}
		open := rowAt(t, from.Add(time.Hour), "t", "")
		stays, waits := rowAt(t, time.Unix(0, 0), "t", ""), rowAt(t, justOver.Add(time.Hour), "t", "")
		mustInsert(t, pool, repo, append(old, open, stays, waits, rowAt(t, justOver, "t", ""))...)
		finish(t, pool, repo, retention+time.Hour, append(old, waits)...)
		deleted := 0
		for range 40 {
			deleted += cleanup(t.Context(), t, repo, retention, 5)
		}
		if left := fixture.Count(t, pool, "SELECT count(*) FROM outbox_event"); deleted != 40 || left != 4 {
			t.Errorf("%d rows were deleted and %d are left, want 40 and 4", deleted, left)
		}
		if got := partitionsOf(t, pool); !slices.Contains(got, name) || !slices.Contains(got, recent) {
			t.Errorf("partitions %q, want %s and %s among them", got, name, recent)
		}
	})
}

// A transaction that wrote into an old partition is not committed when the janitor looks. The
// janitor does not wait for it, no statement waits long for the janitor, and the event stays.
func TestPartitionAndAnOpenTransaction(t *testing.T) {
	t.Parallel()
	testdb.EachPostgres(t, func(t *testing.T, db testdb.DB) {
		pool, repo := openPartitioned(t, db)
		name, from := oldPartition(t, pool, repo, 30)
		late := rowAt(t, from.Add(time.Minute), "t", "")
		tx, err := sqltx.Begin(t.Context(), pool, nil, db.Dialect)
		fixture.NoError(t, err)
		defer func() { _ = tx.Rollback() }()
		if _, err := repo.Insert(t.Context(), tx, core.InsertRequest{Rows: []core.NewRow{late}}); err != nil {
			t.Fatal(err)
		}
		// The janitor has seen only events that have ended, and cannot get the lock. On a slow
		// machine the time of a call may be over before that.
		fixture.Await(t, "the janitor fails", func() bool {
			_, _, err = repo.Cleanup(t.Context(), cleanupOf(retention, 10))
			return err != nil
		})
		const want = "did not end within 100ms"
		if _, locked := errors.AsType[*core.LockedError](err); !locked || !strings.Contains(err.Error(), want) {
			t.Fatalf("the janitor returned %v, want %q", err, want)
		}
		// After a failure the janitor pauses, so the next call does nothing.
		if _, _, err := repo.Cleanup(t.Context(), cleanupOf(retention, 10)); err != nil {
			t.Fatalf("the janitor returned %v after a failure", err)
		}
		fixture.NoError(t, tx.Commit())
		janitor(t, partitionedOn(t, pool))
		if got := tableOf(t, pool, late); got != name {
			t.Errorf("the event is in %q, want %s", got, name)
		}
	})
}

// oldPartition makes a partition whose only event ended before the retention.
func oldPartition(t *testing.T, pool *sql.DB, repo *sqloutbox.Repository, days int) (name string, from time.Time) {
	t.Helper()
	from = time.Now().UTC().Truncate(day).Add(time.Duration(-days) * day)
	name = addPartition(t, pool, "outbox_", from, day)
	row := rowAt(t, from.Add(time.Hour), "t", "")
	mustInsert(t, pool, repo, row)
	finish(t, pool, repo, retention+time.Hour, row)
	return name, from
}

// At each statement of the drop, an event with an id of the partition is inserted. It is published
// at once, or stays open. It is never lost. An open event stays in its table, so that claims under
// way find it there.
func TestPartitionAndAnEventAtEachStatement(t *testing.T) {
	t.Parallel()
	for _, published := range []bool{false, true} {
		t.Run(fmt.Sprint("published ", published), func(t *testing.T) {
			t.Parallel()
			testdb.EachPostgres(t, func(t *testing.T, db testdb.DB) {
				pool, repo := openPartitioned(t, db)
				db.Wrap = sqlpause.Connector
				paused := db.Open(t)
				landed, whole := map[string]int{}, len(partitionsOf(t, pool))
				for at := 1; ; at++ {
					name, from := oldPartition(t, pool, repo, 10+at)
					late := rowAt(t, from.Add(time.Minute), "t", "")
					done, where := make(chan error, 1), ""
					come := func() {
						err := insertRows(t.Context(), pool, repo, late)
						if err == nil {
							err = pool.QueryRowContext(t.Context(), "SELECT tableoid::regclass::text "+
								"FROM outbox_event "+
								"WHERE id = $1::text::uuid", late.ID.String()).Scan(&where)
						}
						if err == nil && published {
							_, err = repo.MarkDone(t.Context(), []core.Done{{ID: late.ID}}, false)
						}
						done <- err
					}
					statements := 0
					ctx := suite.ContextWithPause(t.Context(), func() error {
						if statements++; statements == at {
							go come()
							select { // unless the table is locked
							case err := <-done:
								done <- err
							case <-time.After(50 * time.Millisecond):
							}
						}
						return nil
					})
					_, _, err := partitionedOn(t, paused).Cleanup(ctx, cleanupOf(retention, 10))
					fixture.Must(t, err == nil || strings.Contains(err.Error(), "did not end within"),
						"at statement %d: %v", at, err)
					if statements < at && len(partitionsOf(t, pool)) == whole {
						break
					}
					if statements < at { // the call did not get that far in its time
						janitor(t, partitionedOn(t, pool))
						at--
						continue
					}
					if err := <-done; err != nil {
						t.Fatalf("the event at statement %d: %v", at, err)
					}
					janitor(t, partitionedOn(t, pool))
					landed[strings.Replace(where, name, "the partition", 1)]++
					switch got := tableOf(t, pool, late); {
					case got == "":
						t.Fatalf("the event that came at statement %d into %s is lost", at, where)
					case !published && got != where:
						t.Fatalf("the open event that came at statement %d into %s is in %s", at, where, got)
					}
					if got := partitionsOf(t, pool); strings.Contains(fmt.Sprint(got), "drop") ||
						slices.Contains(got, name) != (tableOf(t, pool, late) == name) {
						t.Fatalf("statement %d: partitions %q", at, got)
					}
					fixture.MustExec(t, pool, "DELETE FROM outbox_event")
					fixture.MustExec(t, pool, "DROP TABLE IF EXISTS "+name)
				}
				fixture.Check(t, len(landed) == 2,
					"events came into %v, want some before the partition left and some after it", landed)
			})
		})
	}
}

// A process dies at each statement of the drop. The next janitor finishes the drop, and no row that
// must stay is lost. That holds also for a row that became open or young in a table that was
// already detached.
func TestPartitionAndAKilledJanitor(t *testing.T) {
	t.Parallel()
	killed := errors.New("killed")
	testdb.EachPostgres(t, func(t *testing.T, db testdb.DB) {
		pool, repo := openPartitioned(t, db)
		db.Wrap = sqlpause.Connector
		paused := db.Open(t)
		whole := partitionsOf(t, pool)
		between := 0
		for at := 1; ; at++ {
			name, from := oldPartition(t, pool, repo, 10+at)
			statements := 0
			ctx := suite.ContextWithPause(t.Context(), func() error {
				if statements++; statements >= at {
					return killed
				}
				return nil
			})
			_, _, err := partitionedOn(t, paused).Cleanup(ctx, cleanupOf(retention, 10))
			if err == nil && slices.Equal(partitionsOf(t, pool), whole) {
				break
			}
			if err == nil { // the call did not get that far in its time
				janitor(t, partitionedOn(t, pool))
				at--
				continue
			}
			saved := int64(0)
			open, young := rowAt(t, from.Add(time.Minute), "t", "k"), rowAt(t, from.Add(time.Hour), "t", "")
			if got := partitionsOf(t, pool); !slices.Contains(got, name) && strings.Contains(fmt.Sprint(got), "drop") {
				between, saved = between+1, 2
				i := slices.IndexFunc(got, func(n string) bool { return strings.Contains(n, "drop") })
				mustInsert(t, pool, repo, open, young)
				columns := ownColumns(t, pool)
				fixture.MustExec(t, pool, "INSERT INTO "+got[i]+" ("+columns+") SELECT "+columns+" FROM outbox_event")
				fixture.MustExec(t, pool, "UPDATE "+got[i]+" SET status = 1, done_at = now() WHERE id = '"+
					young.ID.String()+"'")
				fixture.MustExec(t, pool, "DELETE FROM outbox_event")
			}
			janitor(t, partitionedOn(t, pool))
			if got := partitionsOf(t, pool); !slices.Equal(got, whole) {
				t.Fatalf("after a death at statement %d: partitions %q, want %q", at, got, whole)
			}
			if n := fixture.Count(t, pool, "SELECT count(*) FROM outbox_event"); n != saved ||
				saved > 0 && (tableOf(t, pool, open) == "" || tableOf(t, pool, young) == "") {
				t.Fatalf("after a death at statement %d: %d rows, want %d", at, n, saved)
			}
			fixture.MustExec(t, pool, "DELETE FROM outbox_event")
		}
		fixture.Check(t, between >= 2, "%d deaths were between the detachment and the drop", between)
	})
}

// Janitors of several processes drop old partitions at once, while events come into them.
func TestPartitionsAndTwoJanitors(t *testing.T) {
	t.Parallel()
	const partitions = 8
	testdb.EachPostgres(t, func(t *testing.T, db testdb.DB) {
		pool, repo := openPartitioned(t, db)
		whole := partitionsOf(t, pool)
		var froms []time.Time
		for n := range partitions {
			_, from := oldPartition(t, pool, repo, 10+n)
			froms = append(froms, from)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var wg sync.WaitGroup
		var mu sync.Mutex
		var committed []core.NewRow
		var failed []error
		for producer := range 2 {
			wg.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					// There are so few events that each partition is empty for a moment.
					row := rowAt(t, froms[(n+producer)%partitions].Add(time.Minute), "t", "")
					err := insertRows(t.Context(), pool, repo, row)
					if err == nil {
						_, err = repo.MarkDone(t.Context(), []core.Done{{ID: row.ID}}, n%2 == 0)
					}
					mu.Lock()
					if err != nil {
						failed = append(failed, err)
					} else if n%2 != 0 {
						committed = append(committed, row)
					}
					mu.Unlock()
					if n == 40 {
						return
					}
				}
			})
		}
		for range 2 {
			wg.Go(func() {
				for range 6 {
					_, _, err := partitionedOn(t, pool).Cleanup(t.Context(), cleanupOf(retention, 10))
					if err != nil && !strings.Contains(err.Error(), "did not end within") {
						mu.Lock()
						failed = append(failed, err)
						mu.Unlock()
					}
				}
			})
		}
		wg.Wait()
		fixture.NoError(t, errors.Join(failed...))
		for _, row := range committed {
			if tableOf(t, pool, row) == "" {
				t.Fatalf("event %s was published now and is gone", row.ID)
			}
		}
		fixture.MustExec(t, pool, "UPDATE outbox_event SET done_at = done_at - interval '9 days'")
		for range 3 {
			janitor(t, partitionedOn(t, pool))
		}
		if got, n := partitionsOf(t, pool), fixture.Count(t, pool, "SELECT count(*) FROM outbox_event"); n != 0 ||
			!slices.Equal(got, whole) {
			t.Errorf("%d rows are left, partitions %q, want %q", n, got, whole)
		}
	})
}

// Rows in different partitions have the same addresses. A claim takes the rows that it has looked
// at, and no others.
func TestPartitionedClaims(t *testing.T) {
	t.Parallel()
	testdb.EachPostgres(t, func(t *testing.T, db testdb.DB) {
		for _, key := range []string{"", "k"} {
			t.Run(fmt.Sprintf("key %q", key), func(t *testing.T) {
				pool, repo := openPartitioned(t, db.Another(t))
				var rows []core.NewRow
				for n := range 4 {
					from := time.Now().UTC().Truncate(day).Add(time.Duration(-10-n) * day)
					addPartition(t, pool, "outbox_", from, day)
					row := rowAt(t, from.Add(time.Hour), "t", key)
					if key != "" {
						row.KeyID = core.NewKeyID("", "t", fmt.Sprint(key, n))
					}
					rows = append(rows, row)
				}
				mustInsert(t, pool, repo, rows...)
				if n := fixture.Count(t, pool, "SELECT count(DISTINCT ctid) FROM outbox_event"); n != 1 {
					t.Fatalf("the rows have %d addresses, want one", n)
				}
				req := core.ClaimRequest{
					Node: "n", Lease: time.Minute, MaxLease: 15 * time.Minute, Limit: 1, MaxBytes: 1 << 20, Run: 1,
					Keys: 100,
				}
				seen := map[core.RowID]bool{}
				for n := range rows {
					req.ClaimNo = int64(n + 1)
					var got []core.Claimed
					var err error
					if key == "" {
						got, err = repo.ClaimUnordered(t.Context(), req)
					} else {
						got, _, err = repo.ClaimHeads(t.Context(), req, core.KeyID{})
					}
					fixture.Must(t, err == nil && len(got) == 1 && !seen[got[0].ID], "claim %d got %v, %v", n, got, err)
					seen[got[0].ID] = true
					held := fixture.Count(t, pool, "SELECT count(*) FROM outbox_event WHERE lease_until IS NOT NULL")
					fixture.Must(t, held == int64(n+1), "%d rows are leased after %d claims of one", held, n+1)
				}
			})
		}
	})
}

// A configuration that does not fit the table is refused by Migrate and by Check, and a relay does
// not start with it, because its claims would take wrong rows.
func TestPartitionsAndTheConfiguration(t *testing.T) {
	t.Parallel()
	testdb.EachPostgres(t, func(t *testing.T, db testdb.DB) {
		pool := db.Open(t)
		plain, err := sqloutbox.New(pool, sqloutbox.Config{})
		fixture.NoError(t, err)
		refused := func(repo *sqloutbox.Repository, want string, migrate bool) {
			t.Helper()
			checked := repo.Check(t.Context())
			if !errors.Is(checked, core.ErrNoTables) ||
				!strings.Contains(checked.Error(), want) {
				t.Errorf("Check returned %v, want %q", checked, want)
			}
			if err := repo.Migrate(t.Context()); migrate && (!errors.Is(err, core.ErrNoTables) ||
				!strings.Contains(err.Error(), want)) {
				t.Errorf("Migrate returned %v, want %q", err, want)
			}
		}
		fixture.NoError(t, plain.Migrate(t.Context()))
		refused(partitionedOn(t, pool), "table outbox_event is not partitioned", true)
		if _, _, err := partitionedOn(t, pool).Cleanup(t.Context(), cleanupOf(retention, 1)); err == nil {
			t.Error("the janitor took a plain table for one with partitions")
		}
		if err := plain.Check(t.Context()); err != nil {
			t.Error(err)
		}
		pool, repo := openPartitioned(t, db.Another(t))
		if plain, err = sqloutbox.New(pool, sqloutbox.Config{}); err != nil {
			t.Fatal(err)
		}
		refused(plain, "table outbox_event is partitioned, but Config.PartitionEvery is 0", false)
		if err := repo.Check(t.Context()); err != nil {
			t.Error(err)
		}
		fixture.MustExec(t, pool, "DROP TABLE outbox_event_default")
		refused(repo, "has no default partition", true)
		fixture.MustExec(t, pool, "DROP TABLE outbox_event")
		refused(repo, "table outbox_event is missing", false)
		fixture.MustExec(t, pool, "CREATE TABLE outbox_event (id uuid, created_at timestamptz) "+
			"PARTITION BY RANGE (created_at)")
		refused(repo, "is partitioned by RANGE (created_at), want RANGE (id)", true)
	})
}

// The steps of docs/migrations.md make partitions of a table with rows. No row changes, and claims
// go on. The old table becomes a partition, and is later dropped like any other.
func TestPartitionsForAnExistingTable(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/migrations.md")
	fixture.NoError(t, err)
	_, text, _ := strings.Cut(string(page), "### Partitions for an existing table")
	_, text, _ = strings.Cut(text, "```sql\n")
	text, _, _ = strings.Cut(text, "```")
	const end = "+ interval '1 day'"
	fixture.Must(t, strings.Contains(text, end), "the end of the first partition is not in the text:\n%s", text)
	for name, bound := range map[string]string{"as it is": end, "a table of long ago": "- interval '8 days'"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.EachPostgres(t, func(t *testing.T, db testdb.DB) {
				pool, plain := openRepository(t, db)
				rows := cleanupRows(t, 2, rowStates...)
				publish(t, db.Dialect, pool, plain, rows)
				before := fixture.Query(t, pool, "SELECT e::text FROM outbox_event e ORDER BY id",
					func(r *sql.Rows) (row string, err error) { return row, r.Scan(&row) })
				fixture.MustExec(t, pool, strings.Replace(text, end, bound, 1))
				after := fixture.Query(t, pool, "SELECT e::text FROM outbox_event e ORDER BY id",
					func(r *sql.Rows) (row string, err error) { return row, r.Scan(&row) })
				fixture.Must(t, slices.Equal(after, before) && len(after) == len(rows),
					"%d rows became %d, or rows have changed", len(before), len(after))
				repo := partitionedOn(t, pool)
				for range 2 {
					fixture.NoError(t, repo.Migrate(t.Context()))
					fixture.NoError(t, repo.Check(t.Context()))
				}
				for range len(rows) {
					cleanup(t.Context(), t, repo, retention, 100)
				}
				if got := partitionsOf(t, pool); len(got) < 5 || !slices.Contains(got, "outbox_event_before") {
					t.Errorf("partitions %q, want the old table and some more", got)
				}
				req := core.ClaimRequest{
					Node: "other", ClaimNo: 1, Lease: time.Minute, MaxLease: 2 * time.Hour, Limit: 1000,
					MaxBytes: 1 << 20, Run: 100, Keys: 1000,
				}
				unordered, err := repo.ClaimUnordered(t.Context(), req)
				fixture.NoError(t, err)
				heads, _, err := repo.ClaimHeads(t.Context(), req, core.KeyID{})
				fixture.NoError(t, err)
				open := 0
				for _, row := range rows {
					if row.Event.Topic == "open" {
						open++
					}
				}
				retried := 0
				for _, c := range append(unordered, heads...) {
					if c.Event.Topic == "retried" {
						retried++
					} else if c.Event.Topic != "open" {
						t.Errorf("claimed an event that is %s", c.Event.Topic)
					}
				}
				if len(unordered)+len(heads)-retried != open {
					t.Errorf("claimed %d and %d events, %d retried ones among them, want the %d open ones",
						len(unordered), len(heads), retried, open)
				}
				if bound == end {
					return
				}
				fixture.MustExec(t, pool, "UPDATE outbox_event SET status = 1, done_at = now() - interval '30 days'")
				janitor(t, partitionedOn(t, pool))
				if got := partitionsOf(t, pool); slices.Contains(got, "outbox_event_before") {
					t.Errorf("partitions %q, want the old table dropped", got)
				}
				if n := fixture.Count(t, pool, "SELECT count(*) FROM outbox_event"); n != 0 {
					t.Errorf("%d rows are left", n)
				}
			})
		})
	}
}

// ownColumns are the columns that PostgreSQL does not compute.
func ownColumns(t *testing.T, pool *sql.DB) (columns string) {
	t.Helper()
	fixture.NoError(t, pool.QueryRowContext(t.Context(), "SELECT string_agg(attname, ', ') FROM pg_attribute "+
		"WHERE attrelid = 'outbox_event'::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = ''").
		Scan(&columns))
	return columns
}

// A partition that was detached before the table got a column does not have it. The rows in it that
// must stay still come back.
func TestPartitionDetachedBeforeAnUpgrade(t *testing.T) {
	t.Parallel()
	testdb.EachPostgres(t, func(t *testing.T, db testdb.DB) {
		pool, repo := openPartitioned(t, db)
		whole := partitionsOf(t, pool)
		open := rowAt(t, time.Now().Add(-30*day), "t", "k")
		mustInsert(t, pool, repo, open)
		columns := ownColumns(t, pool)
		for _, s := range []string{
			"CREATE TABLE outbox_event_drop_1 (LIKE outbox_event INCLUDING ALL)",
			"INSERT INTO outbox_event_drop_1 (" + columns + ") SELECT " + columns + " FROM outbox_event",
			"DELETE FROM outbox_event",
			"ALTER TABLE outbox_event ADD COLUMN later text",
		} {
			fixture.MustExec(t, pool, s)
		}
		janitor(t, repo)
		if got := partitionsOf(t, pool); !slices.Equal(got, whole) {
			t.Errorf("partitions %q, want %q", got, whole)
		}
		if tableOf(t, pool, open) == "" {
			t.Error("the open event of the detached partition is gone")
		}
	})
}
