package repository_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// The history goes back seven days. After a pause of all relays its end is deleted in small parts.
func TestHistoryForgets(t *testing.T) {
	t.Parallel()
	testdb.Every(t, func(t *testing.T, db testdb.DB) {
		pool, repo := openRepository(t, db)
		now := time.Now().Unix() / 300
		const kept = 7 * 24 * 12
		insert := func(slots ...int64) {
			values := make([]string, len(slots))
			for i, slot := range slots {
				at := fmt.Sprintf("'%s'", time.Unix(slot*300, 0).UTC().Format("2006-01-02 15:04:05+00"))
				switch db.Dialect {
				case core.MySQL:
					at = strings.Replace(at, "+00", "", 1)
				case core.SQLite:
					at = fmt.Sprint(slot * 300_000_000)
				case core.Postgres:
				}
				values[i] = fmt.Sprintf(
					"('%d:', %s, '', 1, 0, 0), ('%d:orders', %s, 'orders', 1, 0, 0)",
					slot,
					at,
					slot,
					at,
				)
			}
			fixture.MustExec(
				t,
				pool,
				"INSERT INTO outbox_history (part, slot, topic, published, refused, died) VALUES "+
					strings.Join(values, ", "),
			)
		}
		for slot := now - 2*kept; slot < now-kept; slot += 24 {
			insert(slot, slot+12) // two slots of two hours
		}
		insert(now-kept+2, now-1)
		count := func() (n int) {
			t.Helper()
			fixture.NoError(t, pool.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM outbox_history").Scan(&n))
			return n
		}
		all := count()
		fixture.NoError(t, repo.SetHistory(t.Context(), core.Backlog{}))
		if n := count(); n != all-2 {
			t.Errorf("one call deleted %d rows, want those of an hour", all-n)
		}
		for range kept {
			fixture.NoError(t, repo.SetHistory(t.Context(), core.Backlog{}))
		}
		if n := count(); n != 4 {
			t.Errorf("%d rows are left, want 4", n)
		}
		got, err := repo.History(t.Context(), 100*24*time.Hour, "orders")
		fixture.NoError(t, err)
		if len(got) != 2 || got[0].At.Unix() != (now-kept+2)*300 || got[1].At.Unix() != (now-1)*300 ||
			got[0].Published != 1 {
			t.Errorf("the history is %+v", got)
		}
		if got, err = repo.History(t.Context(), time.Hour, ""); err != nil || len(got) != 1 || got[0].Published != 2 {
			t.Errorf("the history of an hour is %+v: %v", got, err)
		}
	})
}

// A relay whose tables have no history runs all the same. Other tables and columns have to be there.
func TestRunWithoutHistory(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		pool, repo := openRepository(t, db)
		fixture.MustExec(t, pool, "DROP TABLE outbox_history")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if log, err := runUntil(ctx, t, repo, "table outbox_history is missing"); err != nil || ctx.Err() != nil {
			t.Errorf("Run: %v, logged %s", err, log)
		}
		_, err := repo.AddHistory(t.Context(), nil)
		fixture.Check(t, err != nil && strings.Contains(err.Error(), "outbox_history"), "add history: %v", err)
		fixture.MustExec(t, pool, "ALTER TABLE outbox_event DROP COLUMN failures")
		if err := repo.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "outbox_event.failures") {
			t.Errorf("without the column of the failures: %v", err)
		}
	})
}
