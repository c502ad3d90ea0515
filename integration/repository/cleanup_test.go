package repository_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/binary"
	"fmt"
	"math/big"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/sqlrecord"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

const (
	retention = 7 * 24 * time.Hour
	pastIt    = "8" // the age in days of rows that ended before the retention
)

// uuid7 and ulid return event ids of a time.
func uuid7(at time.Time) string {
	u := random16(at)
	u[6] = u[6]&0x0f | 0x70
	u[8] = u[8]&0x3f | 0x80
	return core.RowID(u).String()
}

func ulid(at time.Time) string {
	u := random16(at)
	digits := fmt.Sprintf("%026s", new(big.Int).SetBytes(u[:]).Text(32))
	return strings.Map(func(r rune) rune {
		return rune("0123456789ABCDEFGHJKMNPQRSTVWXYZ"[strings.IndexRune("0123456789abcdefghijklmnopqrstuv", r)])
	}, digits)
}

func uuid4(time.Time) string {
	u := random16(time.Time{})
	rand.Read(u[:8])
	u[6] = u[6]&0x0f | 0x40
	u[8] = u[8]&0x3f | 0x80
	return core.RowID(u).String()
}

func random16(at time.Time) (u [16]byte) {
	rand.Read(u[6:])
	binary.BigEndian.PutUint64(u[:], uint64(at.UnixMilli())<<16|binary.BigEndian.Uint64(u[:])&0xffff)
	return u
}

// eventIDs has the kinds of event ids. Ids with a time within the retention are young: the rows of
// their events cannot have ended before the retention.
func eventIDs() map[string]func(young bool) string {
	ago := func(make func(time.Time) string, d time.Duration) func(bool) string {
		return func(young bool) string {
			if young {
				return make(time.Now().Add(-d % (6 * 24 * time.Hour)))
			}
			return make(time.Now().Add(-d))
		}
	}
	fixed := func(make func(time.Time) string) func(bool) string {
		return func(bool) string { return make(time.Now()) }
	}
	return map[string]func(young bool) string{
		"UUIDv7, long ago":                ago(uuid7, 30*24*time.Hour),
		"UUIDv7, just behind it":          ago(uuid7, retention+2*time.Hour),
		"UUIDv7 of a clock one day ahead": fixed(func(t time.Time) string { return uuid7(t.Add(24 * time.Hour)) }),
		"ULID, long ago":                  ago(ulid, 30*24*time.Hour),
		"ULID of a clock one day ahead":   fixed(func(t time.Time) string { return ulid(t.Add(24 * time.Hour)) }),
		"UUIDv4":                          fixed(uuid4),
		"derived from an order number": fixed(func(time.Time) string {
			return core.DeriveEventID(core.NewEventID())
		}),
		"low, from a counter of something": fixed(func(time.Time) string { return uuid7(time.Unix(0, 0)) }),
	}
}

// rowStates has the states of rows that a cleanup may find. The topic of a row names its state.
var rowStates = []string{"old done", "old discarded", "young done", "open", "leased", "dead", "delayed", "retried"}

// cleanupRows returns n rows of each kind of id and each state.
func cleanupRows(t *testing.T, n int, states ...string) (rows []core.NewRow) {
	t.Helper()
	for _, id := range eventIDs() {
		for _, state := range states {
			for i := range n {
				row := sqlRow(t, state, []string{"", "k"}[i%2])
				var err error
				row.Event.ID = id(!strings.HasPrefix(state, "old "))
				if row.ID, err = core.NewRowID(row.Event.ID, row.Event.Topic); err != nil {
					t.Fatal(err)
				}
				if i%2 == 1 {
					row.KeyID = core.NewKeyID("", state, "k")
				}
				row.Hot = state == "leased" || state == "dead" || state == "retried"
				if state == "delayed" {
					row.Event.Delay = time.Hour
				}
				rows = append(rows, row)
			}
		}
	}
	return rows
}

// publish writes the rows and brings them into the states that their topics name.
func publish(t *testing.T, d core.Dialect, pool *sql.DB, repo *sqloutbox.Repository, rows []core.NewRow) {
	t.Helper()
	commitRows(t, pool, repo, core.InsertRequest{Node: "n", ClaimNo: 1, Lease: time.Hour, Rows: rows})
	var done []core.Done
	var discarded []core.RowID
	var failed []core.Failure
	for _, row := range rows {
		f := core.Failure{ClaimRef: core.ClaimRef{ID: row.ID, ClaimNo: 1}, Code: "c"}
		switch row.Event.Topic {
		case "old done", "young done":
			done = append(done, core.Done{ID: row.ID})
		case "old discarded":
			discarded = append(discarded, row.ID)
		case "dead":
			f.Kind = core.FailDead
			failed = append(failed, f)
		case "retried":
			f.Kind = core.FailRetry
			failed = append(failed, f)
		}
	}
	if n, err := repo.MarkDone(t.Context(), done, false); err != nil || n != len(done) {
		t.Fatalf("%d of %d rows done, %v", n, len(done), err)
	}
	if n, err := repo.Discard(t.Context(), core.AdminRequest{IDs: discarded, Actor: "a", Reason: "r"}); err != nil ||
		n != len(discarded) {
		t.Fatalf("%d of %d rows discarded, %v", n, len(discarded), err)
	}
	if _, err := repo.MarkFailed(t.Context(), "n", failed); err != nil {
		t.Fatal(err)
	}
	ago := map[core.Dialect]string{
		core.Postgres: "done_at - interval '" + pastIt + " days'", core.MySQL: "done_at - INTERVAL " + pastIt + " DAY",
		core.SQLite: "done_at - " + pastIt + " * 86400000000",
	}[d]
	fixture.MustExec(t, pool, "UPDATE outbox_event SET done_at = "+ago+" WHERE topic LIKE 'old %'")
	old := map[core.Dialect]string{
		core.Postgres: "created_at - interval '30 days'", core.MySQL: "created_at - INTERVAL 30 DAY",
		core.SQLite: "created_at - 30 * 86400000000",
	}[d]
	fixture.MustExec(t, pool, "UPDATE outbox_event SET created_at = "+old)
}

// left counts the rows of each topic.
func left(t *testing.T, pool *sql.DB) map[string]int {
	t.Helper()
	type count struct {
		topic string
		n     int
	}
	counts := map[string]int{}
	for _, c := range fixture.Query(t, pool, "SELECT topic, COUNT(*) FROM outbox_event GROUP BY topic",
		func(r *sql.Rows) (c count, err error) { return c, r.Scan(&c.topic, &c.n) }) {
		counts[c.topic] = c.n
	}
	return counts
}

// wantLeft requires that the rows that ended before the retention are gone, and no others.
func wantLeft(t *testing.T, pool *sql.DB, rows []core.NewRow) {
	t.Helper()
	want := map[string]int{}
	for _, row := range rows {
		if !strings.HasPrefix(row.Event.Topic, "old ") {
			want[row.Event.Topic]++
		}
	}
	if got := left(t, pool); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("left %v, want %v", got, want)
	}
}

func cleanupOf(keep time.Duration, limit int) core.CleanupRequest {
	return core.CleanupRequest{Keep: keep, KeepDiscarded: keep, Limit: limit}
}

func cleanup(ctx context.Context, t *testing.T, repo *sqloutbox.Repository, keep time.Duration, limit int) int {
	t.Helper()
	n, _, err := repo.Cleanup(ctx, cleanupOf(keep, limit))
	fixture.Must(t, err == nil && n <= limit, "deleted %d of at most %d rows, %v", n, limit, err)
	return n
}

// A cleanup walks the primary key from call to call. After each walk over the table all rows that
// ended before the retention are gone, whatever their ids, and no others.
func TestCleanupReachesEveryRow(t *testing.T) {
	t.Parallel()
	const limit = 8 // so that a call sees only a part of the table
	testdb.Every(t, func(t *testing.T, db testdb.DB) {
		pool, repo := openRepository(t, db)
		var rows []core.NewRow
		for round := range 3 {
			states := rowStates
			if round > 0 {
				states = rowStates[:2] // rows in the other states do not change any more
			}
			more := cleanupRows(t, 6, states...)
			publish(t, db.Dialect, pool, repo, more)
			if rows = append(rows, more...); round == 0 {
				wantAll(t, pool, rows)
			}
			deleted, want := 0, len(more)
			if round == 0 {
				want = len(more) / len(rowStates) * 2
			}
			// A call deletes half of limit, or goes on for a second, or comes to the end and starts
			// again. The walk before may have ended in the middle, and one more walk deletes
			// nothing.
			most := 2 * (2*len(rows)/limit + 2)
			calls := 0
			for ; calls < most && deleted < want; calls++ {
				deleted += cleanup(t.Context(), t, repo, retention, limit)
			}
			for range 2 {
				deleted += cleanup(t.Context(), t, repo, retention, limit)
			}
			fixture.Check(t, deleted == want,
				"round %d: %d rows were deleted in %d calls, want %d", round, deleted, calls, want)
			wantLeft(t, pool, rows)
		}
	})
}

func wantAll(t *testing.T, pool *sql.DB, rows []core.NewRow) {
	t.Helper()
	n := 0
	for _, c := range left(t, pool) {
		n += c
	}
	fixture.Must(t, n == len(rows), "%d rows, want %d", n, len(rows))
}

// Two processes clean the same table at once. Each row is counted by one of them.
func TestCleanupByTwoProcesses(t *testing.T) {
	t.Parallel()
	const limit = 10
	testdb.Every(t, func(t *testing.T, db testdb.DB) {
		pool, first := openRepository(t, db)
		second, err := sqloutbox.New(pool, sqloutbox.Config{Dialect: db.Dialect})
		fixture.NoError(t, err)
		rows := cleanupRows(t, 8, rowStates...)
		publish(t, db.Dialect, pool, first, rows)
		var mu sync.Mutex
		var failed error
		deleted, want := 0, len(rows)/len(rowStates)*2
		var wg sync.WaitGroup
		for _, repo := range []*sqloutbox.Repository{first, second} {
			wg.Go(func() {
				// A row that the other process has locked waits for the next walk.
				for range 4 * (len(rows)/limit + 2) {
					n, _, err := repo.Cleanup(t.Context(), cleanupOf(retention, limit))
					mu.Lock()
					deleted += n
					if err != nil || n > limit {
						failed = fmt.Errorf("deleted %d of at most %d rows, %w", n, limit, err)
					}
					stop := failed != nil || deleted >= want
					mu.Unlock()
					if stop {
						return
					}
				}
			})
		}
		wg.Wait()
		fixture.Check(t, failed == nil && deleted == want, "%d rows were deleted, want %d; %v", deleted, want, failed)
		wantLeft(t, pool, rows)
	})
}

// A call reads a large table in pages, each in a transaction of its own. It jumps over the rows
// whose ids have a time within the retention.
func TestCleanupReadsABoundedPart(t *testing.T) {
	t.Parallel()
	const many, limit = 50_000, 100
	for _, c := range []struct {
		name string
		most func(statements int) int // rows that they may read
		ids  map[core.Dialect]string
	}{
		{"ids in the order of time", func(int) int { return 3 * limit }, map[core.Dialect]string{
			core.Postgres: "(lpad(to_hex((extract(epoch from now())*1000)::bigint - n), 12, '0') || '7' || " +
				"lpad(to_hex(n), 19, '0'))::uuid",
			core.MySQL:  "UNHEX(CONCAT(LPAD(HEX(UNIX_TIMESTAMP() * 1000 - n), 12, '0'), '7', LPAD(HEX(n), 19, '0')))",
			core.SQLite: "unhex(printf('%012x', unixepoch() * 1000 - n) || '7' || printf('%019x', n))",
		}},
		{"random ids", func(statements int) int { return (statements + 1) * limit }, map[core.Dialect]string{
			core.Postgres: "md5(n::text)::uuid", core.MySQL: "UNHEX(LEFT(SHA2(n, 256), 32))",
			core.SQLite: "randomblob(16)",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			testdb.Every(t, func(t *testing.T, db testdb.DB) {
				pool, rec := fixture.OpenRecorded(t, db)
				repo := fixture.NewRepository(t, pool, sqloutbox.Config{Dialect: db.Dialect})
				fillDone(t, db.Dialect, pool, many, c.ids[db.Dialect])
				for call := range 3 { // the first call starts at the beginning, the others go on
					rec.Start()
					n := cleanup(t.Context(), t, repo, retention, limit)
					calls := rec.Stop()
					fixture.Must(t, n == 0, "call %d deleted %d young rows in %d statements", call, n, len(calls))
					calls = calls[:min(len(calls), 60)] // the other statements are the same
					most := c.most(len(calls))
					if read := readBy(t, db.Dialect, pool, calls, limit); read == 0 && call == 0 || read > most {
						t.Errorf("call %d read %d rows of %d in %d statements, want at most %d", call, read, many,
							len(calls), most)
					}
				}
			})
		})
	}
}

// fillDone writes rows that have just ended.
func fillDone(t *testing.T, d core.Dialect, pool *sql.DB, n int, id string) {
	t.Helper()
	series := map[core.Dialect]string{
		core.Postgres: fmt.Sprintf("generate_series(1, %d) AS s(n)", n),
		core.MySQL:    fixture.Numbers(n),
		core.SQLite: fmt.Sprintf("(WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < %d) "+
			"SELECT n FROM s) s", n),
	}[d]
	now := map[core.Dialect]string{
		core.Postgres: "clock_timestamp()", core.MySQL: "UTC_TIMESTAMP(6)", core.SQLite: "unixepoch() * 1000000",
	}[d]
	payload := "'p'"
	if d == core.SQLite {
		payload = "x'70'"
	}
	fixture.MustExec(t, pool, fmt.Sprintf("INSERT INTO outbox_event (id, event_id, event_type, topic, payload, "+
		"status, available_at, occurred_at, created_at, done_at) SELECT %s, 'x', 't', 'young', %s, 1, %s, %s, %s, %s "+
		"FROM %s", id, payload, now, now, now, now, series))
}

// readBy counts the rows of the table that statements read, with the statistics that the table has.
// SQLite does not report that, but a walk along its primary key stops at its limit.
func readBy(t *testing.T, d core.Dialect, pool *sql.DB, calls []sqlrecord.Call, limit int) (read int) {
	t.Helper()
	planner := "SELECT 1"
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
			read += limit
		}
	}
	return read
}
