package repository_test

import (
	"fmt"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// A failover that lost commits leaves an old key row behind, and raises the timeline. No number that
// was given out before is given out again, in whichever way the next numbers are taken. Without a
// new timeline the numbers stay dense. (integration/clusters has a real failover.)
func TestNumbersFollowTheTimeline(t *testing.T) {
	t.Parallel()
	testdb.EachPostgres(t, func(t *testing.T, db testdb.DB) {
		pool, repo := openRepository(t, db)
		rows := func(n int) core.InsertRequest {
			req := core.InsertRequest{}
			for range n {
				req.Rows = append(req.Rows, sqlRow(t, "t", "k"))
			}
			return req
		}
		failover := func(lost int) {
			old := fmt.Sprintf("UPDATE outbox_key SET last_seq = last_seq - %d, timeline = '00000000'", lost)
			fixture.MustExec(t, pool, old)
		}
		last := commitRows(t, pool, repo, rows(3))[2].KeySeq
		next := func(what string, number int64, dense bool) {
			t.Helper()
			fixture.Check(t, number > last && (number == last+1) == dense, "%s: %d after %d", what, number, last)
			last = number
		}
		for _, n := range []int{1, 2} {
			failover(2)
			places := commitRows(t, pool, repo, rows(n))
			next("first after the failover", places[0].KeySeq, false)
			fixture.Check(t, !places[0].Opened, "the key began anew")
			if n == 2 {
				next("second after the failover", places[1].KeySeq, true)
			}
			next("later", commitRows(t, pool, repo, rows(1))[0].KeySeq, true)
		}

		dead := rows(1)
		next("dead", commitRows(t, pool, repo, dead)[0].KeySeq, true)
		fixture.MustExec(t, pool, "UPDATE outbox_event SET status = 1, done_at = now() "+
			"WHERE key_seq < (SELECT last_seq FROM outbox_key)")
		fixture.MustExec(t, pool, "UPDATE outbox_event SET status = 3, lane = NULL WHERE status = 0")
		failover(2)
		req := core.AdminRequest{IDs: []core.RowID{dead.Rows[0].ID}, Actor: "a", Reason: "r"}
		_, err := repo.Redrive(t.Context(), req)
		fixture.NoError(t, err)
		var number int64
		row := pool.QueryRowContext(t.Context(), "SELECT key_seq FROM outbox_event WHERE status = 0")
		fixture.NoError(t, row.Scan(&number))
		next("redriven", number, false)
	})
}
