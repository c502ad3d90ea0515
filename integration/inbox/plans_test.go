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
	coreinbox "github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/inbox/sqlinbox"
	"github.com/ormoutbox/ormoutbox/inbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/longtest"
	"github.com/ormoutbox/ormoutbox/integration/internal/sqlrecord"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// No statement about events reads all of the 60,000 events that a handler has processed, with or
// without statistics.
func TestInboxPlans(t *testing.T) {
	longtest.Mark(t)
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		pool, rec := fixture.OpenRecorded(t, db)
		s := fixture.NewInboxStore(t, pool, sqlinbox.Config{Dialect: db.Dialect})
		in, err := coreinbox.New(coreinbox.Config{
			Consumer: "billing", Transactor: inboxSQL(pool, db.Dialect).transactor, Store: s,
			Handler:   "h",
			Retention: time.Hour, BrokerRetention: time.Minute,
		})
		fixture.NoError(t, err)
		processed := func(*message.Message) ([]*message.Message, error) { return nil, nil }
		_, err = inbox.Wrap(in, inbox.ReturnDead())(processed)(inboxMessage("e"))
		fixture.NoError(t, err)
		fillInbox(t, db.Dialect, pool)
		var batch []*message.Message
		for n := range 100 { // every second event exists
			batch = append(batch, inboxMessage(fmt.Sprintf("e-%d", 1000+2*n)), inboxMessage(fmt.Sprintf("f-%d", n)))
		}
		for _, statistics := range []string{"no", "new"} {
			if statistics == "new" {
				fixture.MustExec(t, pool, map[core.Dialect]string{
					core.Postgres: "ANALYZE inbox_seen, inbox_failure",
					core.MySQL:    "ANALYZE TABLE inbox_seen, inbox_failure",
					core.SQLite:   "ANALYZE",
				}[db.Dialect])
			}
			for name, run := range map[string]func(ctx context.Context) error{
				"duplicate": func(ctx context.Context) error {
					msg := inboxMessage("e-30000")
					msg.SetContext(ctx)
					_, err := inbox.Wrap(in, inbox.ReturnDead())(func(*message.Message) ([]*message.Message, error) {
						return nil, errOnce
					})(msg)
					return err
				},
				"batch": func(ctx context.Context) error {
					for _, err := range inbox.ProcessBatch(ctx, in, batch,
						func(context.Context, []*message.Message) error { return nil }) {
						if err != nil {
							return err
						}
					}
					return nil
				},
				"parked": func(ctx context.Context) error {
					_, err := in.ListDead(ctx, coreinbox.DeadQuery{Limit: 10})
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
						if strings.Contains(c.Query, "inbox_seen") || strings.Contains(c.Query, "inbox_failure") {
							inboxPlan(t, db.Dialect, pool, c)
						}
					}
				})
			}
		}
	})
}

// What an operator asks reads each row of {seen} by its key, and of the failures no more than it
// counts or shows.
func TestInboxDeskPlans(t *testing.T) {
	longtest.Mark(t)
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		pool, rec := fixture.OpenRecorded(t, db)
		s := fixture.NewInboxStore(t, pool, sqlinbox.Config{Dialect: db.Dialect})
		for _, handler := range []string{"h", "i"} {
			_, err := s.Register(t.Context(), coreinbox.Registration{Consumer: "billing", Handler: handler})
			fixture.NoError(t, err)
		}
		fillInbox(t, db.Dialect, pool)
		fixture.MustExec(t, pool, map[core.Dialect]string{
			core.Postgres: "ANALYZE inbox_seen, inbox_failure", core.SQLite: "ANALYZE",
			core.MySQL: "ANALYZE TABLE inbox_seen, inbox_failure",
		}[db.Dialect])
		rec.Start()
		backlog, err := s.Backlog(t.Context(), 100)
		fixture.Must(t, err == nil && len(backlog) == 2 && backlog[0].Failed == 100 && backlog[0].More, "%+v, %v",
			backlog, err)
		page, err := s.ListFailed(t.Context(), coreinbox.FailedQuery{Limit: 10})
		fixture.Must(t, err == nil && len(page.Events) == 10, "%+v, %v", page, err)
		page, err = s.ListFailed(t.Context(), coreinbox.FailedQuery{Limit: 10, After: page.Next})
		fixture.Must(t, err == nil && len(page.Events) == 10, "%+v, %v", page, err)
		_, err = s.Outcomes(t.Context(), "", "e-30000")
		fixture.NoError(t, err)
		calls := rec.Stop()
		if len(calls) > 20 {
			t.Errorf("%d statements", len(calls))
		}
		for _, c := range calls {
			tx, err := pool.BeginTx(t.Context(), nil)
			fixture.NoError(t, err)
			plan := fixture.Explain(t, db.Dialect, tx, c, true)
			fixture.NoError(t, tx.Rollback())
			for _, walk := range []string{
				"Seq Scan on inbox_seen", "Seq Scan on inbox_failure", "|inbox_seen|ALL|", "|inbox_failure|ALL|",
				"|s|ALL|", "|s|index|", "SCAN inbox_seen|", "SCAN inbox_failure|", "SCAN s|",
			} {
				if strings.Contains(plan.String(), walk) {
					t.Errorf("%s in the plan of\n%.300s\n%.2000s", walk, c.Query, plan.String())
				}
			}
		}
	})
}

// fillInbox writes 60,000 events that were processed a minute ago, 200 two hours ago, and 5,000
// that failed. The handler is listed.
func fillInbox(t *testing.T, d core.Dialect, pool *sql.DB) {
	t.Helper()
	const seen = "INSERT INTO inbox_seen (handler_id, tenant_id, event_id, attempts, processed_at) "
	const failed = "INSERT INTO inbox_failure (consumer, handler, tenant_id, event_id, status, attempts, " +
		"received_at, updated_at) "
	for _, query := range map[core.Dialect][]string{
		core.Postgres: {
			seen + "SELECT handler_id, '', 'e-' || n, 1, now() - CASE WHEN n <= 200 THEN interval '2 hours' ELSE " +
				"interval '1 minute' END FROM inbox_handler, generate_series(1, 60200) AS s(n)",
			failed + "SELECT 'billing', 'h', '', 'x-' || n, 3, 1, now() - n * interval '1 second', now() FROM " +
				"generate_series(1, 5000) AS s(n)",
		},
		core.MySQL: {
			seen + "SELECT handler_id, '', CONCAT('e-', n), 1, UTC_TIMESTAMP(6) - INTERVAL IF(n <= 200, 120, 1) " +
				"MINUTE FROM inbox_handler, " + fixture.Numbers(60200),
			failed + "SELECT 'billing', 'h', '', CONCAT('x-', n), 3, 1, UTC_TIMESTAMP(6) - INTERVAL n SECOND, " +
				"UTC_TIMESTAMP(6) FROM " + fixture.Numbers(5000),
		},
		core.SQLite: {
			"WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < 60200) " + seen + "SELECT " +
				"handler_id, '', 'e-' || n, 1, (unixepoch() - CASE WHEN n <= 200 THEN 7200 ELSE 60 END) * 1000000 " +
				"FROM inbox_handler, s",
			"WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < 5000) " + failed +
				"SELECT 'billing', 'h', '', 'x-' || n, 3, 1, (unixepoch() - n) * 1000000, unixepoch() * 1000000 FROM s",
		},
	}[d] {
		fixture.MustExec(t, pool, query)
	}
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
		core.Postgres: {"Seq Scan on inbox_seen", "Seq Scan on inbox_failure"},
		core.MySQL:    {"|ALL|", "|index|", "filesort"},
		core.SQLite:   {"SCAN inbox_seen|", "SCAN inbox_failure|", "(handler_id=?)", "(consumer=? AND handler=?)"},
	}[d] {
		few := walk == "filesort" && strings.Contains(c.Query, "status = 4") // only dead events are sorted
		if strings.Contains(plan.String(), walk) && !few && !strings.HasPrefix(c.Query, "INSERT") {
			t.Errorf("%s in the plan of\n%.300s\n%.2000s", walk, c.Query, plan.String())
		}
	}
	if read > 2000 {
		t.Errorf("%d rows are read by\n%.300s\n%.2000s", read, c.Query, plan.String())
	}
}
