package inbox_test

import (
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	coreinbox "github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
)

// A version without Discard takes a discarded event for a processed one. The row of its failure
// says who discarded it and why. Cleanup deletes that row together with the event.
func TestInboxDiscardedRow(t *testing.T) {
	t.Parallel()
	eachInbox(t, func(t *testing.T, w *inboxWorld) {
		in := w.another(named, func(c *coreinbox.Config) { c.Retention, c.BrokerRetention = 2*time.Hour, time.Hour })
		var keys []coreinbox.Key
		for _, id := range []string{"old", "young", "dead", "redriven"} {
			park(t, in, errOnce, id)
			keys = append(keys, coreinbox.Key{Consumer: "billing", Handler: "h", EventID: id})
		}
		n, err := in.Discard(t.Context(), keys[:2], "ada", "spam")
		fixture.Must(t, n == 2 && err == nil, "%d discarded, %v", n, err)
		n, err = in.Redrive(t.Context(), keys[3:], "ada", "mended")
		fixture.Must(t, n == 1 && err == nil, "%d redriven, %v", n, err)
		if status, _ := w.status("old"); status != 2 {
			t.Errorf("status %d, want that of a processed event", status)
		}
		const noted = "SELECT COUNT(*) FROM inbox_failure WHERE status = 0 AND last_error_code = 'discarded' AND " +
			"last_error = 'ada: spam'"
		if n := fixture.Count(t, w.pool, noted); n != 2 {
			t.Errorf("%d rows name the actor and the reason, want 2", n)
		}
		_, err = in.Middleware(w.handler)(inboxMessage("old"))
		fixture.NoError(t, err)
		w.wantEffects(map[string]int{})
		w.hears("duplicate", 1)

		ago := map[core.Dialect]string{
			core.Postgres: "now() - interval '3 hours'", core.MySQL: "UTC_TIMESTAMP(6) - INTERVAL 3 HOUR",
			core.SQLite: "(unixepoch() - 10800) * 1000000",
		}[w.db.Dialect]
		fixture.MustExec(t, w.pool, "UPDATE inbox_seen SET processed_at = "+ago+" WHERE event_id = 'old'")
		fixture.MustExec(t, w.pool, "UPDATE inbox_failure SET received_at = "+ago+" WHERE event_id <> 'young'")
		if n, err := in.Cleanup(t.Context()); n != 1 || err != nil {
			t.Errorf("deleted %d, %v", n, err)
		}
		if n := fixture.Count(t, w.pool, "SELECT COUNT(*) FROM inbox_failure WHERE event_id <> 'old'"); n != 3 ||
			fixture.Count(t, w.pool, "SELECT COUNT(*) FROM inbox_failure") != 3 {
			t.Errorf("%d rows of failures are left, want those of the three events that are left", n)
		}
	})
}
