package repository_test

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/longtest"
	"github.com/ormoutbox/ormoutbox/integration/internal/sqlrecord"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// While an old snapshot is open, PostgreSQL keeps the index entries of all finished rows. Claims do
// not read these entries again and again, because they start at a cursor. A row that is committed
// late, before the cursor, is still found.
func TestOldSnapshot(t *testing.T) {
	longtest.Mark(t)
	t.Parallel()
	const finished, batch, batches = 40_000, 20, 20
	o := openOldSnapshot(t, batch, "topic")
	pool, rec, repo := o.pool, o.rec, o.repo
	insert := o.insert
	var want []core.RowID
	for range batches {
		var rows []core.NewRow
		for range batch {
			rows = append(rows, sqlRow(t, "topic", ""))
			want = append(want, rows[len(rows)-1].ID)
		}
		insert(rows...)
	}
	req := o.req
	claim := func() (rows []core.Claimed, blocks float64) {
		t.Helper()
		req.ClaimNo++
		rec.Start()
		rows, err := repo.ClaimUnordered(t.Context(), req)
		calls := rec.Stop()
		fixture.NoError(t, err)
		planner := ""
		for _, c := range calls {
			if strings.Contains(c.Query, "set_config('jit'") {
				planner = c.Query
			}
			if strings.Contains(c.Query, "outbox_event") {
				blocks += blocksRead(t, pool, planner, c.Query, c.Args)
			}
		}
		return rows, blocks
	}
	var got []core.RowID
	var most, least float64
	for range batches {
		rows, blocks := claim()
		for _, r := range rows {
			got = append(got, r.ID)
		}
		if most = max(most, blocks); least == 0 || blocks < least {
			least = blocks
		}
	}
	fixture.Check(t, slices.Equal(got, want),
		"claimed %d rows, want the %d rows in the order of their due times", len(got), len(want))
	if most < finished || least > finished/10 {
		t.Errorf("claims read %.0f to %.0f blocks: want one that reads those of %d finished rows, and most that do not",
			least, most, finished)
	}

	late := sqlRow(t, "topic", "")
	insert(late)
	_, err := pool.ExecContext(t.Context(), "UPDATE outbox_event SET available_at = now() - interval '1 hour' WHERE "+
		"status = 0")
	fixture.NoError(t, err)
	insert(sqlRow(t, "other topic", "")) // claims that start at a cursor do not know this topic
	found := 0
	fixture.Await(t, "the rows behind the cursors are claimed", func() bool {
		rows, _ := claim()
		found += len(rows)
		return found == 2
	})
}

// oldSnapshot is a database with a transaction that is open since before the rows finished.
type oldSnapshot struct {
	*testing.T
	dialect core.Dialect
	pool    *sql.DB
	rec     *sqlrecord.Recorder
	repo    *sqloutbox.Repository
	req     core.ClaimRequest
}

// openOldSnapshot makes 40,000 finished rows of each topic while an old snapshot is open. Claims
// take at most limit rows.
func openOldSnapshot(t *testing.T, limit int, topics ...string) *oldSnapshot {
	t.Helper()
	db := testdb.Postgres(t)
	o := &oldSnapshot{T: t, dialect: db.Dialect, req: core.ClaimRequest{
		Node: "n", Lease: time.Hour, MaxLease: 2 * time.Hour, Limit: limit, MaxBytes: 1 << 20,
	}}
	o.pool, o.rec = fixture.OpenRecorded(t, db)
	var err error
	o.repo, err = sqloutbox.New(o.pool, sqloutbox.Config{Dialect: db.Dialect})
	fixture.NoError(t, err)
	fixture.NoError(t, o.repo.Migrate(t.Context()))
	old, err := db.Open(t).BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	fixture.NoError(t, err)
	t.Cleanup(func() { _ = old.Rollback() })
	var now time.Time
	fixture.NoError(t, old.QueryRowContext(t.Context(), "SELECT now()").Scan(&now))
	for _, topic := range topics {
		_, err := o.pool.ExecContext(t.Context(), `INSERT INTO outbox_event (id, event_id, event_type, topic, payload,
				available_at, occurred_at, created_at)
			SELECT gen_random_uuid(), gen_random_uuid()::text, 't', $1, '', now(), now(), now()
			FROM generate_series(1, 40000)`, topic)
		fixture.NoError(t, err)
	}
	fixture.MustExec(t, o.pool, "UPDATE outbox_event SET status = 1, done_at = now()")
	return o
}

func (o *oldSnapshot) insert(rows ...core.NewRow) {
	o.Helper()
	commitRows(o.T, o.pool, o.repo, core.InsertRequest{Rows: rows})
}

// late inserts rows that have been due for an hour, and returns their ids.
func (o *oldSnapshot) late(topic string, n, size int) map[core.RowID]bool {
	o.Helper()
	late := map[core.RowID]bool{}
	var rows []core.NewRow
	for range n {
		row := sqlRow(o, topic, "")
		row.Event.Type, row.Event.Payload = "late", make([]byte, size)
		rows, late[row.ID] = append(rows, row), true
	}
	o.insert(rows...)
	fixture.MustExec(o.T, o.pool, "UPDATE outbox_event SET available_at = now() - interval '1 hour' "+
		"WHERE event_type = 'late'")
	return late
}

// step inserts a row of each topic and claims. It removes the claimed rows from late.
func (o *oldSnapshot) step(late map[core.RowID]bool, topics ...string) {
	o.Helper()
	var rows []core.NewRow
	for _, topic := range topics {
		rows = append(rows, sqlRow(o, topic, ""))
	}
	o.insert(rows...)
	o.req.ClaimNo++
	got, err := o.repo.ClaimUnordered(o.Context(), o.req)
	fixture.NoError(o.T, err)
	for _, row := range got {
		delete(late, row.ID)
	}
}

// Many rows that are committed late leave soon, although new rows of their topic and of others come
// in all the time. After a claim from the beginning has found the first of them, each further claim
// takes some.
func TestOldSnapshotManyLateRows(t *testing.T) {
	longtest.Mark(t)
	t.Parallel()
	for _, c := range []struct {
		name     string
		topics   int
		size     int
		maxBytes int64
	}{
		{"one topic of many", 20, 1, 1 << 20},
		{"large rows", 1, 10_000, 30_000},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			o := openOldSnapshot(t, 40, "topic0")
			o.req.MaxBytes = c.maxBytes
			var topics []string
			for i := range c.topics {
				topics = append(topics, fmt.Sprint("topic", i))
			}
			for range 3 { // the claims that follow start at the cursors
				o.step(nil, topics...)
			}
			late := o.late("topic0", 100, c.size)
			fixture.Await(t, "the first late rows are claimed", func() bool {
				o.step(late, topics...)
				return len(late) < 100
			})
			for left := len(late); left > 0; left = len(late) {
				if o.step(late, topics...); len(late) == left {
					t.Fatalf("a claim took none of the %d late rows that were left", left)
				}
			}
		})
	}
}

// Claims of one topic, such as those that probe a stopped destination, do not put off the claims
// from the beginning that find the late rows of the others.
func TestOldSnapshotProbes(t *testing.T) {
	longtest.Mark(t)
	t.Parallel()
	o := openOldSnapshot(t, 40, "topic", "stopped")
	o.step(nil, "topic")
	late := o.late("other topic", 1, 1)
	fixture.Await(t, "the row of another topic is claimed", func() bool {
		o.req.Only, o.req.Except = []string{"stopped"}, nil
		o.step(late, "topic")
		o.req.Only, o.req.Except = nil, []string{"stopped"}
		o.step(late, "topic")
		return len(late) == 0
	})
}

// The first claim after the pause of a tenant takes its rows, although claims had started behind
// them.
func TestOldSnapshotPausedTenant(t *testing.T) {
	longtest.Mark(t)
	t.Parallel()
	o := openOldSnapshot(t, 20, "topic")
	paused := map[core.RowID]bool{}
	for range 5 {
		row := sqlRow(t, "topic", "")
		row.Event.TenantID = "acme"
		o.insert(row)
		paused[row.ID] = true
	}
	batch := func() {
		for range 20 {
			o.insert(sqlRow(t, "topic", ""))
		}
	}
	o.req.ExceptTenants = []string{"acme"}
	for range 3 { // the claims after the first start at the cursor
		batch()
		if o.step(paused, "topic"); len(paused) < 5 {
			t.Fatalf("%d rows of a paused tenant were claimed", 5-len(paused))
		}
	}
	batch() // enough for a claim that starts at the cursor
	o.req.ExceptTenants = nil
	if o.step(paused, "topic"); len(paused) > 0 {
		t.Errorf("the first claim after the pause left %d rows of the tenant", len(paused))
	}
}

// blocksRead runs a claim again, in a transaction that is rolled back, and returns how many blocks
// it looks at.
func blocksRead(t *testing.T, pool *sql.DB, planner, query string, args []any) float64 {
	t.Helper()
	tx, err := pool.BeginTx(t.Context(), nil)
	fixture.NoError(t, err)
	defer tx.Rollback()
	_, err = tx.ExecContext(t.Context(), planner)
	fixture.NoError(t, err)
	var text string
	err = tx.QueryRowContext(t.Context(), "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) "+query, args...).Scan(&text)
	fixture.NoError(t, err)
	var plans []struct {
		Plan struct {
			Hit  float64 `json:"Shared Hit Blocks"`
			Read float64 `json:"Shared Read Blocks"`
		}
	}
	fixture.NoError(t, json.Unmarshal([]byte(text), &plans))
	return plans[0].Plan.Hit + plans[0].Plan.Read
}
