package repository_test

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// The audit table only grows. Neither its pages nor the count of its newest rows read all of it.
func TestAuditPlans(t *testing.T) {
	t.Parallel()
	const columns = "INSERT INTO outbox_audit (at, action, actor, reason, row_id, event_id, topic) SELECT "
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		pool, rec := fixture.OpenRecorded(t, db)
		repo := fixture.NewRepository(t, pool, sqloutbox.Config{Dialect: db.Dialect})
		fixture.MustExec(t, pool, map[core.Dialect]string{
			core.Postgres: columns + "now(), 'redrive', 'ada', 'r', gen_random_uuid(), 'e', 't' " +
				"FROM generate_series(1, 20000)",
			core.MySQL: columns +
				"UTC_TIMESTAMP(6), 'redrive', 'ada', 'r', UNHEX(LPAD(HEX(n), 32, '0')), 'e', 't' FROM " +
				fixture.Numbers(20000),
			core.SQLite: "WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < 20000) " + columns +
				"0, 'redrive', 'ada', 'r', randomblob(16), 'e', 't' FROM s",
		}[db.Dialect])
		for _, statistics := range []string{"no", "new"} {
			if statistics == "new" {
				fixture.MustExec(t, pool, map[core.Dialect]string{
					core.Postgres: "ANALYZE outbox_audit",
					core.MySQL:    "ANALYZE TABLE outbox_audit",
					core.SQLite:   "ANALYZE",
				}[db.Dialect])
			}
			for name, run := range map[string]func(ctx context.Context) error{
				"newest": func(ctx context.Context) error {
					_, err := repo.ListAudit(ctx, core.AuditQuery{Limit: 100})
					return err
				},
				"page": func(ctx context.Context) error {
					_, err := repo.ListAudit(ctx, core.AuditQuery{Limit: 100, Before: 10_000})
					return err
				},
				"row": func(ctx context.Context) error {
					_, err := repo.ListAudit(ctx, core.AuditQuery{Limit: 100, RowID: core.RowID{1}})
					return err
				},
				"count": func(ctx context.Context) error {
					_, err := repo.CountAudit(ctx, 19_990, math.MaxInt64)
					return err
				},
			} {
				t.Run(name+" with "+statistics+" statistics", func(t *testing.T) {
					rec.Start()
					err := run(t.Context())
					calls := rec.Stop()
					fixture.NoError(t, err)
					looked := 0
					for _, c := range calls {
						if !strings.Contains(c.Query, "outbox_audit") {
							continue
						}
						looked++
						plan := fixture.Explain(t, db.Dialect, pool, c, false)
						whole := strings.Contains(plan.String(), "Seq Scan") || strings.Contains(plan.String(), "SCAN ")
						for i := range plan.Rows {
							whole = whole || slices.Contains([]string{"ALL", "index"}, plan.Column(i, "type")) ||
								strings.Contains(plan.Column(i, "Extra"), "filesort") && name != "count"
						}
						if whole {
							t.Errorf("%s\n%s", c.Query, plan)
						}
					}
					fixture.Check(t, looked != 0, "no statement reads the audit")
				})
			}
		}
	})
}
