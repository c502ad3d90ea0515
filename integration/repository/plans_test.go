package repository_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
	"github.com/ormoutbox/ormoutbox/core/ops/sqlops"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/longtest"
	"github.com/ormoutbox/ormoutbox/integration/internal/sqlrecord"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// TestPlans checks the plans of the relay's statements over a large table: 200,000 delayed events,
// 50,000 followers of a dead event in one key, 100,000 events of a stopped topic, and 100,000
// published events. A statement must read only rows that matter for its result, with statistics of
// the table as it is and of an empty one.
const (
	manyDelayed   = 200_000
	manyFollowers = 50_000
	manyStopped   = 100_000
	manyDone      = 100_000
	mostRead      = 20_000 // rows that one call may look at
)

func TestPlans(t *testing.T) {
	longtest.Mark(t)
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		plansOf(t, db, sqloutbox.Config{Dialect: db.Dialect}, func(*sql.DB) {})
	})
}

// The same holds with partitions. Each kind of rows has its own partition.
func TestPartitionedPlans(t *testing.T) {
	longtest.Mark(t)
	t.Parallel()
	testdb.EachPostgres(t, func(t *testing.T, db testdb.DB) {
		plansOf(t, db, sqloutbox.Config{Dialect: db.Dialect, PartitionEvery: day}, func(pool *sql.DB) {
			for kind := range 6 { // ids of a kind begin with 000000 and its number
				addPartition(t, pool, "outbox_", time.UnixMilli(int64(kind)<<16), time.Duration(1<<16)*time.Millisecond)
			}
		})
	})
}

func plansOf(t *testing.T, db testdb.DB, cfg sqloutbox.Config, prepare func(pool *sql.DB)) {
	t.Helper()
	pool, rec := fixture.OpenRecorded(t, db)
	repo := fixture.NewRepository(t, pool, cfg)
	prepare(pool)
	analyze(t, db.Dialect, pool)
	fillLarge(t, db, pool)
	for _, statistics := range []string{"old", "new"} {
		t.Run(statistics+" statistics", func(t *testing.T) {
			if statistics == "new" {
				analyze(t, db.Dialect, pool)
			}
			plans(t, db.Dialect, pool, rec, repo, cfg.PartitionEvery > 0)
		})
	}
}

func plans(t *testing.T, d core.Dialect, pool *sql.DB, rec *sqlrecord.Recorder, repo *sqloutbox.Repository,
	partitioned bool,
) {
	store := fixture.NewOpsStore(t, repo)
	req := core.ClaimRequest{
		Node: "n", ClaimNo: 1, Lease: time.Minute, MaxLease: 15 * time.Minute, Limit: 100, MaxBytes: 1 << 20, Run: 10,
		Keys:   1000,
		Except: []string{"stopped"},
	}
	only := req
	only.Except, only.Only = nil, []string{"t1", "small", "elsewhere"}
	lane := core.NewKeyID("", "small", "k7")
	skip := req
	skip.SkipDead = true
	for _, c := range []struct {
		name string
		run  func(ctx context.Context) error
	}{
		{"ClaimUnordered", func(ctx context.Context) error {
			rows, err := repo.ClaimUnordered(ctx, req)
			return claimed(rows, 100, 100, err)
		}},
		{"ClaimUnordered of certain topics", func(ctx context.Context) error {
			rows, err := repo.ClaimUnordered(ctx, only)
			return claimed(rows, 100, 100, err)
		}},
		{"ClaimHeads", func(ctx context.Context) error {
			rows, _, err := repo.ClaimHeads(ctx, req, core.KeyID{})
			return claimed(rows, 99, 100, err) // the scan on PostgreSQL counts the one blocked key
		}},
		{"ClaimHeads of certain topics", func(ctx context.Context) error {
			rows, _, err := repo.ClaimHeads(ctx, only, core.KeyID{})
			return claimed(rows, 99, 100, err)
		}},
		{"ClaimKey", func(ctx context.Context) error {
			rows, err := repo.ClaimKey(ctx, req, lane)
			return claimed(rows, 10, 10, err)
		}},
		{"ClaimHeads past dead rows", func(ctx context.Context) error {
			rows, _, err := repo.ClaimHeads(ctx, skip, core.KeyID{})
			return claimed(rows, 99, 100, err)
		}},
		{"NextDue", func(ctx context.Context) error { _, _, err := repo.NextDue(ctx, req); return err }},
		{"MarkDone", func(ctx context.Context) error {
			_, err := repo.MarkDone(ctx, []core.Done{{ID: core.RowID{1}}, {ID: core.RowID{2}, Receipt: "r"}}, false)
			return err
		}},
		{"MarkFailed", func(ctx context.Context) error {
			_, err := repo.MarkFailed(ctx, "n", []core.Failure{{
				ClaimRef: core.ClaimRef{ID: core.RowID{1}, ClaimNo: 1},
				Kind:     core.FailRetry,
			}})
			return err
		}},
		{"Renew", func(ctx context.Context) error {
			_, err := repo.Renew(ctx, "n", time.Minute, []core.ClaimRef{{ID: core.RowID{1}, ClaimNo: 1}})
			return err
		}},
		{"Cleanup", func(ctx context.Context) error {
			_, _, err := repo.Cleanup(ctx, cleanupOf(time.Hour, 1000))
			return err
		}},
		{"Clean with an archive", func(ctx context.Context) error {
			hook := func(context.Context, []core.ArchivedEvent) error { return nil }
			_, _, err := repo.Cleanup(ctx, core.CleanupRequest{
				Keep: time.Hour, KeepDiscarded: time.Hour, Limit: 1000, Archive: hook,
			})
			return err
		}},
		{"CollectKeys", func(ctx context.Context) error {
			_, _, err := repo.CollectKeys(ctx, 0, core.KeyID{}, 100)
			return err
		}},
		{"ScanEvents", func(ctx context.Context) error { return scanPages(ctx, store, ops.Filter{}) }},
		{"ScanEvents by status", func(ctx context.Context) error {
			return scanPages(ctx, store, ops.Filter{Statuses: []ops.Status{ops.StatusDone}})
		}},
		{"ScanEvents of open events", func(ctx context.Context) error {
			return scanPages(ctx, store, ops.Filter{Statuses: []ops.Status{ops.StatusNew, ops.StatusRetry}})
		}},
		{"ScanEvents of open events that do not exist", func(ctx context.Context) error {
			return scanPages(ctx, store, ops.Filter{Statuses: []ops.Status{ops.StatusRetry}})
		}},
		{"ScanEvents of open events of a topic", func(ctx context.Context) error {
			return scanPages(ctx, store, ops.Filter{Statuses: []ops.Status{ops.StatusNew}, Topic: "stopped"})
		}},
		{"ScanEvents of dead events", func(ctx context.Context) error {
			return scanPages(ctx, store, ops.Filter{Statuses: []ops.Status{ops.StatusDead}})
		}},
		{"ScanEvents of open and dead events", func(ctx context.Context) error {
			return scanPages(ctx, store, ops.Filter{
				Statuses: []ops.Status{ops.StatusNew, ops.StatusDead}, Type: "other",
			})
		}},
		{"ScanEvents of a key", func(ctx context.Context) error {
			return scanPages(ctx, store, ops.Filter{Topic: "stopped", Key: "k"})
		}},
		{"ScanEvents of an event", func(ctx context.Context) error {
			return scanPages(ctx, store, ops.Filter{EventID: core.NewEventID()})
		}},
		{"ScanEvents of a time", func(ctx context.Context) error {
			now := time.Now()
			return scanPages(ctx, store, ops.Filter{CreatedFrom: now.Add(-time.Minute), CreatedBefore: now})
		}},
		{"ScanEvents with filters that no index has", func(ctx context.Context) error {
			return scanPages(ctx, store, ops.Filter{
				TenantID: "x", AggregateType: "x", AggregateID: "x", ErrorCode: "x", Type: "x", Topic: "x",
			})
		}},
		{"ScanEvents of a fingerprint", func(ctx context.Context) error {
			return scanPages(ctx, store, ops.Filter{
				Fingerprint: "x", Statuses: []ops.Status{ops.StatusRetry, ops.StatusDead},
			})
		}},
		{"ScanEvents next to an event", func(ctx context.Context) error {
			_, err := store.ScanEvents(ctx, ops.Scan{
				KeyID: core.NewKeyID("", "big", "dead"), BeforeSeq: 40_000, Newest: true, Limit: 10, Look: 1000,
			})
			return err
		}},
		{"ReadContent", func(ctx context.Context) error {
			_, _, err := store.ReadContent(ctx, core.RowID{1})
			return err
		}},
		{"ListDead", func(ctx context.Context) error { _, err := repo.ListDead(ctx, core.DeadQuery{}); return err }},
		{"Backlog", func(ctx context.Context) error { _, err := repo.Backlog(ctx, 1000); return err }},
	} {
		if partitioned && strings.HasPrefix(c.name, "Clean") {
			continue // cleanups name the partitions, and drop some
		}
		t.Run(c.name, func(t *testing.T) {
			release(t, d, pool)
			rec.Start()
			err := c.run(t.Context())
			calls := rec.Stop()
			fixture.NoError(t, err)
			fixture.Must(t, len(calls) != 0, "no statement was recorded")
			release(t, d, pool)
			explain(t, d, pool, calls[:min(len(calls), 20)]) // a cleanup reads page after page
		})
	}
}

// scanPages reads two pages of a list in each direction. Each looks at no more rows than it is told
// to, however many the table has.
func scanPages(ctx context.Context, store *sqlops.Store, f ops.Filter) error {
	for _, newest := range []bool{false, true} {
		s := ops.Scan{Filter: f, Limit: 20, Look: 400, Newest: newest}
		for range 2 {
			found, err := store.ScanEvents(ctx, s)
			if err != nil || found.Next == "" {
				return err
			}
			s.After = found.Next
		}
	}
	return nil
}

func claimed(rows []core.Claimed, least, most int, err error) error {
	if err == nil && (len(rows) < least || len(rows) > most) {
		err = fmt.Errorf("claimed %d rows, want %d to %d", len(rows), least, most)
	}
	return err
}

// release releases the rows of a claim.
func release(t *testing.T, d core.Dialect, pool *sql.DB) {
	t.Helper()
	first := "x'00000006000000000000000000000000'"
	if d == core.Postgres {
		first = "'00000006-0000-0000-0000-000000000000'"
	}
	if _, err := pool.ExecContext(t.Context(), "UPDATE outbox_event SET lease_until = NULL WHERE id > "+first+
		" AND lease_until IS NOT NULL"); err != nil {
		t.Fatal(err)
	}
}

// explain checks the plans of recorded statements.
func explain(t *testing.T, d core.Dialect, pool *sql.DB, calls []sqlrecord.Call) {
	t.Helper()
	read, planner := 0, "SELECT 1"
	for _, c := range calls {
		if strings.Contains(c.Query, "set_config('jit'") {
			planner = c.Query
		}
		if !strings.Contains(c.Query, "outbox_event") {
			continue
		}
		switch d {
		case core.Postgres:
			read += explainPostgres(t, pool, planner, c)
		case core.MySQL:
			read += explainMySQL(t, pool, c)
		default:
			explainSQLite(t, pool, c)
		}
	}
	fixture.Check(t, read <= mostRead, "%d rows were read by %d statements", read, len(calls))
}

// explainPostgres runs the statement again, in a transaction that is rolled back, and walks its
// plan.
func explainPostgres(t *testing.T, pool *sql.DB, planner string, c sqlrecord.Call) (read int) {
	t.Helper()
	tx, err := pool.BeginTx(t.Context(), nil)
	fixture.NoError(t, err)
	defer tx.Rollback()
	if _, err := tx.ExecContext(t.Context(), planner); err != nil {
		t.Fatal(err)
	}
	var text string
	if err := tx.QueryRowContext(t.Context(), "EXPLAIN (ANALYZE, FORMAT JSON) "+c.Query,
		c.Args...).Scan(&text); err != nil {
		t.Fatalf("%v\n%s", err, c.Query)
	}
	var plans []struct{ Plan map[string]any }
	fixture.NoError(t, json.Unmarshal([]byte(text), &plans))
	var walk func(node map[string]any)
	walk = func(node map[string]any) {
		number := func(name string) float64 { n, _ := node[name].(float64); return n }
		loops := number("Actual Loops")
		table, _ := node["Relation Name"].(string) // or a partition of it
		if strings.HasPrefix(table, "outbox_event") && node["Operation"] == nil && loops > 0 {
			if kind := node["Node Type"]; kind != "Index Scan" && kind != "Index Only Scan" && kind != "Tid Scan" {
				t.Errorf("%v on %s\n%s", kind, table, text)
			}
			read += int(loops * (number("Actual Rows") + number("Rows Removed by Filter")))
		}
		if strings.Contains(c.Query, "e.topic = t.topic AND e.available_at <=") &&
			node["Index Name"] == "outbox_event_ready" {
			if cond, _ := node["Index Cond"].(string); strings.Contains(cond, "topic = ") &&
				!strings.Contains(cond, "available_at <=") {
				t.Errorf("the due time is no index condition: %s", cond)
			}
		}
		children, _ := node["Plans"].([]any)
		for _, child := range children {
			walk(child.(map[string]any))
		}
	}
	walk(plans[0].Plan)
	return read
}

// explainMySQL checks the plan, and counts the rows that the storage engine read.
func explainMySQL(t *testing.T, pool *sql.DB, c sqlrecord.Call) int {
	t.Helper()
	conn, err := pool.Conn(t.Context())
	fixture.NoError(t, err)
	defer conn.Close()
	verb, _, _ := strings.Cut(c.Query, " ")
	if !slices.Contains([]string{"SELECT", "UPDATE", "DELETE", "INSERT"}, verb) {
		return 0
	}
	plan := fixture.Explain(t, core.MySQL, conn, c, false)
	for i := range plan.Rows {
		table, typ, extra := plan.Column(i, "table"), plan.Column(i, "type"), plan.Column(i, "Extra")
		base := table != "" && !strings.HasPrefix(table, "<")
		if base && (typ == "ALL" || typ == "index") || strings.Contains(extra, "filesort") && base {
			t.Errorf("table %s: access %s, key %s, %s\n%s", table, typ, plan.Column(i, "key"), extra, c.Query)
		}
	}
	if verb != "SELECT" {
		return 0
	}
	question := handlerReads(t, conn)
	before := handlerReads(t, conn)
	question = before - question                                      // the reads of SHOW SESSION STATUS itself
	result, err := conn.QueryContext(t.Context(), c.Query, c.Args...) //nolint:rowserrcheck // EachRow checks rows.Err
	fixture.NoError(t, err)
	fixture.EachRow(t, result, func() {})
	return handlerReads(t, conn) - before - question
}

func handlerReads(t *testing.T, conn *sql.Conn) (total int) {
	t.Helper()
	//nolint:rowserrcheck,sqlclosecheck // EachRow checks rows.Err, and closes
	rows, err := conn.QueryContext(t.Context(), "SHOW SESSION STATUS LIKE 'Handler_read%'")
	fixture.NoError(t, err)
	fixture.EachRow(t, rows, func() {
		var name string
		var n int
		fixture.NoError(t, rows.Scan(&name, &n))
		total += n
	})
	return total
}

func explainSQLite(t *testing.T, pool *sql.DB, c sqlrecord.Call) {
	t.Helper()
	//nolint:rowserrcheck // EachRow checks rows.Err
	rows, err := pool.QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+c.Query, c.Args...)
	if err != nil {
		t.Fatalf("%v\n%s", err, c.Query)
	}
	subquery := ""
	fixture.EachRow(t, rows, func() {
		var id, parent, unused int
		var detail string
		fixture.NoError(t, rows.Scan(&id, &parent, &unused, &detail))
		if detail == "CO-ROUTINE e" { // a subquery, all rows of which are needed
			subquery = "SCAN e"
			return
		}
		scan := strings.HasPrefix(detail, "SCAN e") && !strings.Contains(detail, "USING") && detail != subquery ||
			strings.HasPrefix(detail, "SCAN outbox_event")
		if scan || strings.Contains(detail, "TEMP B-TREE FOR ORDER BY") {
			t.Errorf("%s\n%s", detail, c.Query)
		}
	})
}

// fillLarge writes the rows.
func fillLarge(t *testing.T, db testdb.DB, pool *sql.DB) {
	t.Helper()
	f := newFiller(t, db, pool)
	f.rows(1, manyDelayed, "'t1'", f.noLane, f.noSeq, "0", f.later, f.noTime)
	f.rows(2, manyFollowers, "'big'", f.bytes(core.NewKeyID("", "big", "dead")), "n",
		"CASE WHEN n = 1 THEN 3 ELSE 0 END", f.now, f.noTime)
	f.rows(3, manyStopped, "'stopped'", f.noLane, f.noSeq, "0", f.now, f.noTime)
	f.rows(4, manyStopped/2, "'stopped'", f.bytes(core.NewKeyID("", "stopped", "k")), "n", "0", f.now, f.noTime)
	f.rows(5, manyDone, "'small'", f.noLane, f.noSeq, "1", f.now, f.now)
	f.rows(6, 300, "'small'", f.noLane, f.noSeq, "0", f.now, f.noTime)
	for i := range 200 {
		f.rows(16+i, 20, "'small'", f.bytes(core.NewKeyID("", "small", fmt.Sprint("k", i))), "n", "0", f.now, f.noTime)
	}
}

func analyze(t *testing.T, d core.Dialect, pool *sql.DB) {
	t.Helper()
	text := "ANALYZE outbox_event"
	if d == core.MySQL {
		text = "ANALYZE TABLE outbox_event"
	}
	if _, err := pool.ExecContext(t.Context(), text); err != nil {
		t.Fatal(err)
	}
}
