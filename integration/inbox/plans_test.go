package inbox_test

import (
	"context"
	"database/sql"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox/sqlinbox"
	"github.com/ormoutbox/ormoutbox/inbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/sqlrecord"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// No statement about events walks through the 60,000 that a handler has processed, with or without
// statistics.
func TestInboxPlans(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		pool, rec := fixture.OpenRecorded(t, db)
		s := fixture.NewInboxStore(t, pool, sqlinbox.Config{Dialect: db.Dialect})
		in, err := inbox.New(inbox.Config{
			Consumer: "billing", Transactor: inboxSQL(pool, db.Dialect).transactor, Store: s,
			Handler:   func(*message.Message) string { return "h" },
			Retention: time.Hour, BrokerRetention: time.Minute,
		})
		fixture.NoError(t, err)
		fillInbox(t, db.Dialect, pool)
		var batch []*message.Message
		for n := range 100 { // every other one exists
			batch = append(batch, inboxMessage(fmt.Sprintf("e-%d", 1000+2*n)), inboxMessage(fmt.Sprintf("f-%d", n)))
		}
		for _, statistics := range []string{"no", "new"} {
			if statistics == "new" {
				fixture.MustExec(t, pool, map[core.Dialect]string{
					core.Postgres: "ANALYZE inbox_event", core.MySQL: "ANALYZE TABLE inbox_event",
					core.SQLite: "ANALYZE inbox_event",
				}[db.Dialect])
			}
			for name, run := range map[string]func(ctx context.Context) error{
				"duplicate": func(ctx context.Context) error {
					msg := inboxMessage("e-30000")
					msg.SetContext(ctx)
					_, err := in.Middleware(func(*message.Message) ([]*message.Message, error) {
						return nil, errOnce
					})(msg)
					return err
				},
				"batch": func(ctx context.Context) error {
					for _, err := range in.ProcessBatch(ctx, batch,
						func(context.Context, []*message.Message) error { return nil }) {
						if err != nil {
							return err
						}
					}
					return nil
				},
				"parked": func(ctx context.Context) error {
					_, err := in.ListDead(ctx, inbox.DeadQuery{Limit: 10})
					return err
				},
				"cleanup": func(ctx context.Context) error {
					_, err := s.Cleanup(ctx, "billing", time.Hour, 100)
					return err
				},
			} {
				t.Run(name+" with "+statistics+" statistics", func(t *testing.T) {
					rec.Start()
					err := run(t.Context())
					calls := rec.Stop()
					if err != nil || len(calls) == 0 {
						t.Fatal(len(calls), err)
					}
					for _, c := range calls {
						if strings.Contains(c.Query, "inbox_event") {
							inboxPlan(t, db.Dialect, pool, c)
						}
					}
				})
			}
		}
	})
}

// fillInbox writes 60,000 events that were processed a minute ago, and 200 two hours ago.
func fillInbox(t *testing.T, d core.Dialect, pool *sql.DB) {
	t.Helper()
	const columns = "INSERT INTO inbox_event (consumer, handler, tenant_id, event_id, status, attempts, " +
		"received_at, updated_at, processed_at) "
	fixture.MustExec(t, pool, map[core.Dialect]string{
		core.Postgres: columns + "SELECT 'billing', 'h', '', 'e-' || n, 2, 1, at, at, at FROM (SELECT n, now() - " +
			"CASE WHEN n <= 200 THEN interval '2 hours' ELSE interval '1 minute' END AS at FROM generate_series(1, " +
			"60200) AS s(n)) x",
		core.MySQL: columns + "SELECT 'billing', 'h', '', CONCAT('e-', n), 2, 1, at, at, at FROM (SELECT n, " +
			"UTC_TIMESTAMP(6) - INTERVAL IF(n <= 200, 120, 1) MINUTE AS at FROM " + fixture.Numbers(60200) + ") x",
		core.SQLite: "WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < 60200), x AS (SELECT " +
			"n, (unixepoch() - CASE WHEN n <= 200 THEN 7200 ELSE 60 END) * 1000000 AS at FROM s) " + columns +
			"SELECT 'billing', 'h', '', 'e-' || n, 2, 1, at, at, at FROM x",
	}[d])
}

var removed = regexp.MustCompile(`Rows Removed by (?:Filter|Index Recheck): (\d+)`)

// inboxPlan refuses a plan that reads much more than it needs.
func inboxPlan(t *testing.T, d core.Dialect, pool *sql.DB, c sqlrecord.Call) {
	t.Helper()
	tx, err := pool.BeginTx(t.Context(), nil)
	fixture.NoError(t, err)
	defer tx.Rollback()
	plan := fixture.Explain(t, d, tx, c, true)
	read := 0
	for i := range plan.Rows {
		// MariaDB's estimate, and MySQL's; an index that is read in order up to a limit is
		// estimated as a whole.
		if !strings.Contains(c.Query, "LIMIT") {
			n, _ := strconv.Atoi(plan.Column(i, "rows"))
			read += n
		}
	}
	for _, m := range removed.FindAllStringSubmatch(plan.String(), -1) {
		n, _ := strconv.Atoi(m[1])
		read += n
	}
	for _, walk := range map[core.Dialect][]string{
		core.Postgres: {"Seq Scan on inbox_event"}, core.MySQL: {"|ALL|", "|index|", "filesort"},
		core.SQLite: {"SCAN inbox_event|", "(consumer=? AND handler=?)"},
	}[d] {
		few := walk == "filesort" && strings.Contains(c.Query, "status = 4") // only the dead ones are sorted
		if strings.Contains(plan.String(), walk) && !few && !strings.HasPrefix(c.Query, "INSERT") {
			t.Errorf("%s in the plan of\n%.300s\n%.2000s", walk, c.Query, plan.String())
		}
	}
	if read > 2000 {
		t.Errorf("%d rows are read by\n%.300s\n%.2000s", read, c.Query, plan.String())
	}
}
