package repository_test

import (
	"fmt"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
	"github.com/ormoutbox/ormoutbox/core/ops/sqlops"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// Counts are those of the rows, and not of statistics that nobody has made anew.
func TestCountsBesideOldStatistics(t *testing.T) {
	t.Parallel()
	testdb.Every(t, func(t *testing.T, db testdb.DB) {
		const dead, left = 42, 4
		p := fixture.NewProcess(t, db, core.Config{})
		for n := range dead {
			p.Publish(core.Event{Type: "t", Topic: "t", Key: fmt.Sprint(n), Payload: []byte("{}")})
		}
		fixture.MustExec(t, p.Pool, "UPDATE outbox_event SET status = 3, last_error_code = 'permanent'")
		if db.Dialect == core.Postgres {
			fixture.MustExec(t, p.Pool, "ALTER TABLE outbox_event SET (autovacuum_enabled = off)")
		}
		fixture.MustExec(t, p.Pool, map[core.Dialect]string{
			core.Postgres: "ANALYZE", core.MySQL: "ANALYZE TABLE outbox_event", core.SQLite: "ANALYZE",
		}[db.Dialect])
		api, err := sqlops.New(p.Outbox)
		fixture.NoError(t, err)
		plan, err := api.PlanDiscard(t.Context(), ops.Filter{}, dead-left)
		fixture.NoError(t, err)
		_, err = api.Apply(t.Context(), plan, "ada", "test")
		fixture.NoError(t, err)

		b, err := p.Outbox.Backlog(t.Context())
		fixture.NoError(t, err)
		types, err := p.Outbox.TypeBacklog(t.Context())
		fixture.NoError(t, err)
		groups, err := api.Groups(t.Context(), ops.Filter{})
		fixture.NoError(t, err)
		fixture.Must(t, len(types) == 1 && len(groups.Groups) == 1, "types %+v, groups %+v", types, groups)
		fixture.Check(t, b.Dead == left && b.BlockedKeys == left && b.Pending == 0 && types[0].Dead == left &&
			groups.Groups[0].Dead == left, "backlog %+v, types %+v, groups %+v", b, types, groups)
	})
}
