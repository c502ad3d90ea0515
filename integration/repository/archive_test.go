package repository_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// archive collects the rows that a test archives.
type archive struct {
	mu   sync.Mutex
	rows map[core.RowID]int // how often each row came
}

func (a *archive) take(_ context.Context, rows []core.ArchivedEvent) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.rows == nil {
		a.rows = map[core.RowID]int{}
	}
	for _, row := range rows {
		a.rows[row.ID]++
	}
	return nil
}

func archiving(limit int, hook func(context.Context, []core.ArchivedEvent) error) core.CleanupRequest {
	return core.CleanupRequest{Keep: retention, KeepDiscarded: retention, Limit: limit, Archive: hook}
}

// Two processes archive the same table at once. Each row is archived once and deleted once. On
// SQLite both may archive a row.
func TestArchiveByTwoProcesses(t *testing.T) {
	t.Parallel()
	const limit = 10
	testdb.Every(t, func(t *testing.T, db testdb.DB) {
		pool, first := openRepository(t, db)
		second, err := sqloutbox.New(pool, sqloutbox.Config{Dialect: db.Dialect})
		fixture.NoError(t, err)
		rows := cleanupRows(t, 8, rowStates...)
		publish(t, db.Dialect, pool, first, rows)
		var to archive
		var mu sync.Mutex
		var failed error
		deleted, want := 0, len(rows)/len(rowStates)*2
		var wg sync.WaitGroup
		for _, repo := range []*sqloutbox.Repository{first, second} {
			wg.Go(func() {
				for range 4 * (len(rows)/limit + 2) {
					n, _, err := repo.Cleanup(t.Context(), archiving(limit, to.take))
					mu.Lock()
					deleted += n
					if err != nil {
						failed = err
					}
					stop := failed != nil || deleted >= want
					mu.Unlock()
					if stop {
						return
					}
				}
			})
		}
		wg.Wait()
		fixture.Check(t, failed == nil && deleted == want && len(to.rows) == want,
			"%d rows were deleted and %d archived, want %d; %v", deleted, len(to.rows), want, failed)
		for id, n := range to.rows {
			fixture.Check(t, n == 1 || db.Dialect == core.SQLite, "row %s was archived %d times", id, n)
		}
		wantLeft(t, pool, rows)
	})
}

// A process does not get the rows that another one archives, except on SQLite.
func TestArchiveLocksItsRows(t *testing.T) {
	t.Parallel()
	testdb.Every(t, func(t *testing.T, db testdb.DB) {
		pool, first := openRepository(t, db)
		second, err := sqloutbox.New(pool, sqloutbox.Config{Dialect: db.Dialect})
		fixture.NoError(t, err)
		rows := cleanupRows(t, 1, "old done")
		publish(t, db.Dialect, pool, first, rows)
		var outer, inner archive
		deleted := 0
		for range 10 {
			both := func(ctx context.Context, rows []core.ArchivedEvent) error {
				_, _, err := second.Cleanup(ctx, archiving(100, inner.take))
				return errors.Join(err, outer.take(ctx, rows))
			}
			n, _, err := first.Cleanup(t.Context(), archiving(100, both))
			fixture.NoError(t, err)
			if deleted += n; deleted == len(rows) {
				break
			}
		}
		fixture.Check(t, db.Dialect == core.SQLite || len(outer.rows) == len(rows) && len(inner.rows) == 0,
			"%d rows were archived, and %d of them twice", len(outer.rows), len(inner.rows))
	})
}

// An archive that writes to a table of the same database, as most will, does not wait for the
// cleanup.
func TestArchiveIntoATable(t *testing.T) {
	t.Parallel()
	testdb.Every(t, func(t *testing.T, db testdb.DB) {
		pool, repo := openRepository(t, db)
		if db.Dialect == core.SQLite { // the usual pool on SQLite
			pool.SetMaxOpenConns(1)
		}
		rows := cleanupRows(t, 1, "old done", "open")
		publish(t, db.Dialect, pool, repo, rows)
		fixture.MustExec(t, pool, "CREATE TABLE archived (id VARCHAR(36) PRIMARY KEY)")
		hook := func(ctx context.Context, rows []core.ArchivedEvent) error {
			for _, row := range rows {
				if _, err := pool.ExecContext(ctx, "INSERT INTO archived (id) "+
					"VALUES ('"+row.ID.String()+"')"); err != nil {
					return err
				}
			}
			return nil
		}
		deleted, want := 0, len(rows)/2
		for range 10 {
			n, _, err := repo.Cleanup(t.Context(), archiving(100, hook))
			fixture.NoError(t, err)
			if deleted += n; deleted == want {
				break
			}
		}
		if got := int(fixture.Count(t, pool, "SELECT COUNT(*) FROM archived")); deleted != want || got != want {
			t.Errorf("%d rows were deleted and %d archived, want %d", deleted, got, want)
		}
	})
}

// With an archive a partition stays while a row of it is not archived. It is dropped when it is
// empty. Rows of a partition that a process without an archive has detached move back, and are
// archived.
func TestPartitionsAreArchived(t *testing.T) {
	t.Parallel()
	testdb.EachPostgres(t, func(t *testing.T, db testdb.DB) {
		pool, repo := openPartitioned(t, db)
		from := time.Now().UTC().Truncate(day).Add(-30 * day)
		name := addPartition(t, pool, "outbox_", from, day)
		detached := addPartition(t, pool, "outbox_", from.Add(day), day)
		var rows []core.NewRow
		for i := range 6 {
			rows = append(rows, rowAt(t, from.Add(time.Duration(i)*8*time.Hour+time.Hour), "t", ""))
		}
		mustInsert(t, pool, repo, rows...)
		finish(t, pool, repo, retention+time.Hour, rows...)
		fixture.MustExec(t, pool, "ALTER TABLE outbox_event DETACH PARTITION "+detached)
		fixture.MustExec(t, pool, "ALTER TABLE "+detached+" RENAME TO outbox_event_drop_1")
		broken := errors.New("the disk is full")
		// On a slow machine the time of a call may be over before the archive is called.
		failed := 0
		fixture.Await(t, "three calls fail because of the archive", func() bool {
			n, _, err := repo.Cleanup(t.Context(), archiving(100, func(context.Context, []core.ArchivedEvent) error {
				return broken
			}))
			fixture.Must(t, n == 0 && (err == nil || errors.Is(err, broken)), "%d rows were deleted, %v", n, err)
			if err != nil {
				failed++
			}
			return failed == 3
		})
		left := int(fixture.Count(t, pool, "SELECT count(*) FROM outbox_event"))
		if !slices.Contains(partitionsOf(t, pool), name) || left != len(rows) {
			t.Fatalf("%d rows are left in %q, want %d", left, partitionsOf(t, pool), len(rows))
		}
		var to archive
		fixture.Await(t, "the partition is dropped and no row is left", func() bool {
			if _, _, err := repo.Cleanup(t.Context(), archiving(100, to.take)); err != nil {
				t.Fatal(err)
			}
			return fixture.Count(t, pool, "SELECT count(*) FROM outbox_event") == 0 &&
				!slices.Contains(partitionsOf(t, pool), name)
		})
		fixture.Check(t, len(to.rows) == len(rows), "%d rows are archived, want %d", len(to.rows), len(rows))
	})
}

// If discarded rows stay longer than the others, they do not keep a partition, because they are
// moved. If they stay for a shorter time, they are deleted before their partition.
func TestPartitionsByStatus(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		keep, discarded time.Duration
		dropped, left   bool
	}{
		"discarded stay longer":        {retention, 60 * day, true, true},
		"discarded stay less long":     {60 * day, retention, false, false},
		"discarded have the same time": {retention, retention, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.EachPostgres(t, func(t *testing.T, db testdb.DB) {
				pool, repo := openPartitioned(t, db)
				from := time.Now().UTC().Truncate(day).Add(-30 * day)
				part := addPartition(t, pool, "outbox_", from, day)
				done, discarded := rowAt(t, from.Add(time.Hour), "t", ""), rowAt(t, from.Add(2*time.Hour), "t", "")
				mustInsert(t, pool, repo, done, discarded)
				finish(t, pool, repo, 20*day, done)
				if _, err := repo.Discard(t.Context(), core.AdminRequest{
					IDs: []core.RowID{discarded.ID}, Actor: "a", Reason: "r",
				}); err != nil {
					t.Fatal(err)
				}
				fixture.MustExec(t, pool, "UPDATE outbox_event SET done_at = done_at - interval '20 days' "+
					"WHERE status = 4")
				for range 6 {
					if _, _, err := repo.Cleanup(t.Context(), core.CleanupRequest{
						Keep: c.keep, KeepDiscarded: c.discarded, Limit: 100,
					}); err != nil {
						t.Fatal(err)
					}
				}
				if there := slices.Contains(partitionsOf(t, pool), part); there == c.dropped {
					t.Errorf("the partition is there: %v", there)
				}
				if there := tableOf(t, pool, discarded) != ""; there != c.left {
					t.Errorf("the discarded row is there: %v", there)
				}
			})
		})
	}
}
