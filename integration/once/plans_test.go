package once_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/once/sqlonce"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/longtest"
	"github.com/ormoutbox/ormoutbox/integration/internal/sqlrecord"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// No statement about keys reads all of a table of 100,000 keys, half of which have expired, with or
// without statistics.
func TestOncePlans(t *testing.T) {
	longtest.Mark(t)
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		pool, rec := fixture.OpenRecorded(t, db)
		s := fixture.NewOnceStore(t, pool, sqlonce.Config{Dialect: db.Dialect})
		fillKeys(t, db.Dialect, pool, 100_000)
		for _, statistics := range []string{"no", "new"} {
			if statistics == "new" {
				fixture.MustExec(t, pool,
					map[core.Dialect]string{core.MySQL: "ANALYZE TABLE idempotency_key"}[db.Dialect]+
						map[core.Dialect]string{
							core.Postgres: "ANALYZE idempotency_key",
							core.SQLite:   "ANALYZE idempotency_key",
						}[db.Dialect])
			}
			t.Run(statistics+" statistics", func(t *testing.T) {
				held := onceRequest("held " + statistics)
				got, err := s.Acquire(t.Context(), held)
				fixture.NoError(t, err)
				claim := once.Claim{Key: held.Key, Owner: held.Owner, Fence: got.Fence}
				for name, run := range map[string]func(ctx context.Context) error{
					"Acquire": func(ctx context.Context) error { _, err := s.Acquire(ctx, held); return err },
					"Extend":  func(ctx context.Context) error { return s.Extend(ctx, claim, time.Minute) },
					"Cleanup": func(ctx context.Context) error {
						n, err := s.Cleanup(ctx, 300)
						if err == nil && n != 300 {
							err = fmt.Errorf("deleted %d keys, want 300", n)
						}
						return err
					},
				} {
					t.Run(name, func(t *testing.T) {
						rec.Start()
						err := run(t.Context())
						calls := rec.Stop()
						if err != nil || len(calls) == 0 {
							t.Fatal(len(calls), err)
						}
						for _, c := range calls {
							checkKeyPlan(t, db.Dialect, pool, c)
						}
					})
				}
			})
		}
	})
}

// fillKeys writes done keys with plain SQL. Every second key has expired.
func fillKeys(t *testing.T, d core.Dialect, pool *sql.DB, n int) {
	t.Helper()
	const columns = "INSERT INTO idempotency_key (scope, tenant, id, status, owner, fence, attempts, created_at, " +
		"updated_at, done_at, expires_at) SELECT "
	text := map[core.Dialect]string{
		core.Postgres: columns + "'POST /payments', 'acme', 'key-' || n, 2, 'o', 1, 1, now(), now(), now(), now() + " +
			"(n %% 2 * 2 - 1) * interval '1 day' FROM generate_series(1, %d) AS s(n)",
		core.MySQL: columns + "'POST /payments', 'acme', CONCAT('key-', n), 2, 'o', 1, 1, UTC_TIMESTAMP(6), " +
			"UTC_TIMESTAMP(6), UTC_TIMESTAMP(6), " +
			"UTC_TIMESTAMP(6) + INTERVAL (CAST(n AS SIGNED) %% 2 * 2 - 1) DAY FROM " + fixture.Numbers(n) +
			" WHERE n <= %d",
		core.SQLite: "WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < %d) " + columns +
			"'POST /payments', 'acme', 'key-' || n, 2, 'o', 1, 1, 0, 0, 0, (unixepoch() + (n %% 2 * 2 - 1) * 86400) " +
			"* 1000000 FROM s",
	}[d]
	fixture.MustExec(t, pool, fmt.Sprintf(text, n))
}

// checkKeyPlan refuses a plan that visits every row.
func checkKeyPlan(t *testing.T, d core.Dialect, pool *sql.DB, c sqlrecord.Call) {
	t.Helper()
	if !strings.Contains(c.Query, "idempotency_key") {
		return
	}
	plan := fixture.Explain(t, d, pool, c, false)
	for _, walk := range map[core.Dialect][]string{
		core.Postgres: {"Seq Scan"}, core.MySQL: {"|ALL|", "|index|", "filesort"},
		core.SQLite: {"SCAN idempotency_key\n", "SCAN idempotency_key|", "TEMP B-TREE"},
	}[d] {
		if strings.Contains(plan.String(), walk) && !strings.HasPrefix(c.Query, "INSERT") {
			t.Errorf("%s in the plan of\n%s\n%s", walk, c.Query, plan.String())
		}
	}
}
