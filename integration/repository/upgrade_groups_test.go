package repository_test

import (
	"slices"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// A partition that was detached before migration 0004 has no column for groups. The rows in it that
// must stay still come back.
func TestPartitionDetachedBeforeTheUpgrade(t *testing.T) {
	t.Parallel()
	testdb.EachPostgres(t, func(t *testing.T, db testdb.DB) {
		pool, repo := openPartitioned(t, db)
		whole := partitionsOf(t, pool)
		all, err := sqloutbox.Migrations(sqloutbox.Config{Dialect: core.Postgres, PartitionEvery: day})
		fixture.NoError(t, err)
		for _, m := range slices.Backward(all[3:]) {
			fixture.MustExec(t, pool, m.Down)
		}
		fixture.MustExec(t, pool, "DELETE FROM outbox_migration WHERE version > 3")
		open := rowAt(t, time.Now().Add(-30*day), "t", "k")
		mustInsert(t, pool, repo, open)
		for _, s := range []string{
			"CREATE TABLE outbox_event_drop_1 (LIKE outbox_event INCLUDING ALL)",
			"INSERT INTO outbox_event_drop_1 SELECT * FROM outbox_event", "DELETE FROM outbox_event",
		} {
			fixture.MustExec(t, pool, s)
		}
		fixture.NoError(t, repo.Migrate(t.Context()))
		fixture.NoError(t, repo.Check(t.Context()))
		janitor(t, repo)
		if got := partitionsOf(t, pool); !slices.Equal(got, whole) {
			t.Errorf("partitions %q, want %q", got, whole)
		}
		if tableOf(t, pool, open) == "" {
			t.Error("the open event of the detached partition is gone")
		}
	})
}

// An upgrade does not stop the producers for long. It waits only briefly for a transaction that
// uses the table, and then tries again.
func TestUpgradeBehindALongTransaction(t *testing.T) {
	t.Parallel()
	testdb.EachPostgres(t, func(t *testing.T, db testdb.DB) {
		pool, repo := openRepository(t, db)
		all, err := sqloutbox.Migrations(sqloutbox.Config{Dialect: core.Postgres})
		fixture.NoError(t, err)
		fixture.MustExec(t, pool, all[3].Down)
		fixture.MustExec(t, pool, "DELETE FROM outbox_migration WHERE version > 3")
		long, err := pool.BeginTx(t.Context(), nil)
		fixture.NoError(t, err)
		defer func() { _ = long.Rollback() }()
		_, err = long.ExecContext(t.Context(), "SELECT count(*) FROM outbox_event")
		fixture.NoError(t, err)

		ended := make(chan error, 1)
		go func() { ended <- repo.Migrate(t.Context()) }()
		waiting := "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'outbox_event'::regclass"
		fixture.Await(t, "the upgrade waits", func() bool { return fixture.Count(t, pool, waiting) > 0 })
		mustInsert(t, pool, repo, sqlRow(t, "t", "")) // before the long transaction has ended
		fixture.NoError(t, long.Commit())
		fixture.NoError(t, <-ended)
		fixture.NoError(t, repo.Check(t.Context()))
	})
}
