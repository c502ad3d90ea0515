package repository_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// What one event has caused is read from the index of causes, whatever else is asked for.
func TestPlanOfACause(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		pool, rec := fixture.OpenRecorded(t, db)
		repo := fixture.NewRepository(t, pool, sqloutbox.Config{Dialect: db.Dialect})
		store := fixture.NewOpsStore(t, repo)
		rows := make([]core.NewRow, 4000)
		for i := range rows {
			rows[i] = rowAt(t, time.Now(), "topic", "")
			if i%2 == 0 {
				rows[i].Event.Headers = map[string]string{core.HeaderCausationID: fmt.Sprint("c", i/4)}
			}
		}
		commitRows(t, pool, repo, core.InsertRequest{Rows: rows})
		fixture.MustExec(t, pool, map[core.Dialect]string{
			core.Postgres: "ANALYZE outbox_event", core.MySQL: "ANALYZE TABLE outbox_event", core.SQLite: "ANALYZE",
		}[db.Dialect])
		for _, f := range []ops.Filter{
			{Cause: "c7"}, {Cause: "c7", Statuses: []ops.Status{ops.StatusNew}}, {Cause: "c7", Topic: "topic"},
		} {
			rec.Start()
			s, err := store.ScanEvents(t.Context(), ops.Scan{Filter: f, Limit: 100, Look: 10_000})
			calls := rec.Stop()
			fixture.Must(t, err == nil && len(s.Events) == 2, "%d events, %v", len(s.Events), err)
			for _, c := range calls {
				plan := fixture.Explain(t, db.Dialect, pool, c, false)
				fixture.Check(t, !strings.Contains(c.Query, "causation_id =") ||
					strings.Contains(plan.String(), "outbox_event_cause"), "%s\n%s", c.Query, plan)
			}
			fixture.Check(t, len(calls) > 0, "no statement was sent")
		}
	})
}
