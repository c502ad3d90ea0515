package repository_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// Tables of version 1 are upgraded while they are in use, wherever the upgrade is interrupted.
// Every event arrives once and in the order of its key. Keys go on counting, and dead rows can be
// redriven. Processes of version 1 keep the rows that they have claimed. Down goes back to version
// 1.
func TestUpgradeFromVersion1(t *testing.T) {
	t.Parallel()
	testdb.Every(t, func(t *testing.T, db testdb.DB) {
		pool := db.Open(t)
		for after := 0; ; after++ {
			u := newUpgrade(t, db, pool, fmt.Sprintf("v%d_", after))
			if after > len(u.up) {
				break
			}
			u.fill()
			before := u.shape()
			u.refused()
			u.run(u.up[:after])
			u.migrate()
			if after := u.shape(); len(missing(before, after)) == 0 {
				t.Error("Check of version 1 accepts the tables, because they have all that it requires")
			}
			u.relay()
			rows := u.count("event")
			u.run(u.later)
			u.exec("DELETE FROM %smigration WHERE version > 2", u.prefix)
			u.run(u.down[:min(after, len(u.down))])
			u.run(u.down)
			if now := u.shape(); !slices.Equal(now, before) {
				t.Errorf("after Down missing: %v; still there: %v", missing(before, now), missing(now, before))
			}
			u.refused()
			u.run(u.up)
			u.migrate()
			if n := u.count("event"); n != rows {
				t.Errorf("%d rows after Down and Up, want %d", n, rows)
			}
		}
	})
}

type upgrade struct {
	*testing.T
	d        core.Dialect
	pool     *sql.DB
	prefix   string
	repo     *sqloutbox.Repository
	first    string   // the statements of version 1
	up, down []string // those of version 2
	later    []string // the statements that go back to version 2
	claimNo  int64
	ids      map[string]core.RowID
	names    map[core.RowID]string
}

func newUpgrade(t *testing.T, db testdb.DB, pool *sql.DB, prefix string) *upgrade {
	t.Helper()
	cfg := sqloutbox.Config{Dialect: db.Dialect, Prefix: prefix}
	repo, err := sqloutbox.New(pool, cfg)
	fixture.NoError(t, err)
	all, err := sqloutbox.Migrations(cfg)
	fixture.NoError(t, err)
	if len(all) < 2 {
		t.Fatalf("%d migrations", len(all))
	}
	var later []string
	for _, m := range slices.Backward(all[2:]) {
		later = append(later, fixture.Statements(m.Down)...)
	}
	return &upgrade{
		T: t, d: db.Dialect, pool: pool, prefix: prefix, repo: repo,
		first: all[0].Up, up: fixture.Statements(all[1].Up), down: fixture.Statements(all[1].Down), later: later,
		ids: map[string]core.RowID{}, names: map[core.RowID]string{},
	}
}

// run executes statements on a connection that is closed afterwards, as after an interruption.
func (u *upgrade) run(statements []string) {
	u.Helper()
	conn, err := u.pool.Conn(u.Context())
	fixture.NoError(u.T, err)
	defer func() {
		if err := conn.Raw(func(any) error { return driver.ErrBadConn }); !errors.Is(err, driver.ErrBadConn) {
			u.Error(err)
		}
	}()
	for _, s := range statements {
		if _, err := conn.ExecContext(u.Context(), s); err != nil {
			u.Fatalf("%v\n%s", err, s)
		}
	}
}

func (u *upgrade) exec(format string, args ...any) {
	u.Helper()
	fixture.MustExec(u.T, u.pool, fmt.Sprintf(format, args...))
}

func (u *upgrade) count(table string) int64 {
	u.Helper()
	return fixture.Count(u.T, u.pool, "SELECT COUNT(*) FROM "+u.prefix+table)
}

// migrate does what a new process does at its start.
func (u *upgrade) migrate() {
	u.Helper()
	fixture.NoError(u.T, u.repo.Migrate(u.Context()))
	fixture.NoError(u.T, u.repo.Check(u.Context()))
}

// refused checks that this version refuses the tables of version 1, and says what to do.
func (u *upgrade) refused() {
	u.Helper()
	want := "index " + u.prefix + "event_key on "
	if u.d == core.MySQL {
		want = "index " + u.prefix + "event_work on "
	}
	err := u.repo.Check(u.Context())
	if !errors.Is(err, sqloutbox.ErrDrift) || !errors.Is(err, core.ErrNoTables) ||
		!strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "upgrade the tables with AutoCreate") {
		u.Errorf("Check of the tables of version 1 returned %v", err)
	}
}

// shape lists the columns, indexes and named constraints of the events.
func (u *upgrade) shape() []string {
	u.Helper()
	table := u.prefix + "event"
	queries := []string{
		"SELECT name FROM pragma_table_info('" + table + "')", "SELECT sql FROM sqlite_master WHERE tbl_name = '" +
			table + "' AND type = 'index' AND sql IS NOT NULL",
	}
	switch u.d {
	case core.Postgres:
		queries = []string{
			"SELECT column_name FROM information_schema.columns WHERE table_name = '" + table + "'",
			"SELECT indexdef FROM pg_indexes WHERE tablename = '" + table + "'",
			"SELECT conname || pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = '" + table + "'::regclass",
		}
	case core.MySQL:
		where := " WHERE table_schema = DATABASE() AND table_name = '" + table + "'"
		queries = []string{
			"SELECT CONCAT(column_name, COALESCE(generation_expression, '')) FROM information_schema.columns" + where,
			"SELECT CONCAT_WS(' ', index_name, seq_in_index, column_name) FROM information_schema.statistics" + where,
			"SELECT constraint_name FROM information_schema.table_constraints" + where,
		}
	}
	var all []string
	for _, q := range queries {
		all = append(all, fixture.Query(u.T, u.pool, q, func(rows *sql.Rows) (s string, err error) {
			return s, rows.Scan(&s)
		})...)
	}
	slices.Sort(all)
	return all
}

// missing returns the elements of want that are not in got.
func missing(want, got []string) []string {
	return slices.DeleteFunc(slices.Clone(want), func(s string) bool { return slices.Contains(got, s) })
}

// oldRow is a row as version 1 wrote it.
type oldRow struct {
	key      string
	seq      int64
	status   int
	attempts int
	claims   int64 // version 1 counted the claims of a row
	node     string
	lease    time.Duration // from now; 0 for none
	due      time.Duration // from now
	message  string
	receipt  string
	ended    bool
}

// oldRows are the rows of version 1 by their names. A name with a key begins with it. Each row is
// inserted by a statement of its own, so the times of rows that are claimed in order lie far apart.
var oldRows = map[string]oldRow{
	"new":       {due: -20 * time.Second},
	"retried":   {status: 2, attempts: 2, claims: 2, node: "gone", due: -30 * time.Second, message: "no route"},
	"held":      {claims: 7, node: "living", lease: 10 * time.Minute, due: -40 * time.Second},
	"lost":      {claims: 3, node: "gone", lease: -time.Minute, due: -10 * time.Second},
	"dead":      {status: 3, attempts: 20, claims: 20, node: "gone", message: "poison"},
	"done":      {status: 1, claims: 1, node: "gone", receipt: "place 1", ended: true},
	"discarded": {status: 4, attempts: 20, claims: 21, ended: true},
	"delayed":   {due: time.Hour},

	"a0": {key: "a", seq: 100, status: 1, claims: 1, receipt: "place 2", ended: true},
	"a1": {key: "a", seq: 101, status: 2, attempts: 1, claims: 1, node: "gone", message: "no route"},
	"a2": {key: "a", seq: 102},
	"a3": {key: "a", seq: 103},
	"b0": {key: "b", seq: 200, status: 3, attempts: 20, claims: 20, node: "gone", message: "poison"},
	"b1": {key: "b", seq: 201},
	"b2": {key: "b", seq: 202},
	"c0": {key: "c", seq: 300, claims: 1, node: "living", lease: 10 * time.Minute},
	"c1": {key: "c", seq: 301},
	"d0": {key: "d", seq: 400, claims: 1, node: "gone", lease: -time.Minute},
	"d1": {key: "d", seq: 401},
	"e0": {key: "e", seq: 500, due: time.Hour},
	"e1": {key: "e", seq: 501},
	"f0": {key: "f", seq: 600, status: 1, claims: 1, ended: true},
}

const upgradeTopic = "upgraded"

// fill makes the tables of version 1 and writes the rows.
func (u *upgrade) fill() {
	u.Helper()
	u.run(fixture.Statements(u.first))
	u.exec("CREATE TABLE %smigration (version INTEGER NOT NULL PRIMARY KEY, name VARCHAR(100) NOT NULL, "+
		"applied_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP)", u.prefix)
	u.exec("INSERT INTO %smigration (version, name) VALUES (1, 'init')", u.prefix)
	last := map[string]string{}
	for i, name := range slices.Sorted(maps.Keys(oldRows)) {
		id := core.RowID{1, byte(i)}
		u.ids[name], u.names[id] = id, name
		r := oldRows[name]
		lane, seq, node, lease, done := "NULL", "NULL", "NULL", "NULL", "NULL"
		if r.key != "" {
			lane, seq = u.lane(r.key), fmt.Sprint(r.seq)
			last[r.key] = name // names are sorted, so the last row of the key
		}
		if r.node != "" {
			node = "'" + r.node + "'"
		}
		if r.lease != 0 {
			lease = u.at(r.lease)
		}
		if r.ended {
			done = u.at(-time.Minute)
		}
		quoted := func(s string) string {
			if s == "" {
				return "NULL"
			}
			return "'" + s + "'"
		}
		u.exec("INSERT INTO %sevent (id, event_id, event_type, topic, partition_key, lane, key_seq, payload, status, "+
			"attempts, claim_no, claimed_by, lease_until, available_at, occurred_at, created_at, done_at, "+
			"last_error_code, last_error, receipt) VALUES (%s, 'id of %s', '%s', '%s', %s, %s, %s, %s, %d, %d, %d, "+
			"%s, %s, %s, %s, %s, %s, "+
			"%s, %s, %s)", u.prefix, u.id(id), name, name, upgradeTopic, quoted(r.key), lane, seq,
			u.bytes([]byte(name)), r.status, r.attempts, r.claims, node, lease, u.at(min(r.due, r.due-time.Second)),
			u.at(-time.Minute), u.at(-time.Minute), done, quoted(r.message), quoted(r.message), quoted(r.receipt))
	}
	for key, name := range last {
		r := oldRows[name]
		u.exec("INSERT INTO %skey (lane, last_seq, first_seq, last_id, prev_id, used_at) VALUES (%s, %d, %d, %s, "+
			"NULL, %s)",
			u.prefix, u.lane(key), r.seq, r.seq-r.seq%100, u.id(u.ids[name]), u.at(-time.Minute))
	}
	u.exec("INSERT INTO %saudit (at, action, actor, reason, row_id, event_id, topic) VALUES "+
		"(%s, 'discard', 'ann', 'order was cancelled', %s, 'id of discarded', '%s')",
		u.prefix, u.at(-time.Minute), u.id(u.ids["discarded"]), upgradeTopic)
}

func (u *upgrade) lane(key string) string {
	l := core.NewKeyID("", upgradeTopic, key)
	return u.bytes(l[:])
}

func (u *upgrade) bytes(b []byte) string {
	if u.d == core.Postgres {
		return fmt.Sprintf("'\\x%x'::bytea", b)
	}
	return fmt.Sprintf("x'%x'", b)
}

func (u *upgrade) id(id core.RowID) string {
	if u.d == core.Postgres {
		return "'" + id.String() + "'"
	}
	return u.bytes(id[:])
}

func (u *upgrade) at(d time.Duration) string {
	switch u.d {
	case core.Postgres:
		return fmt.Sprintf("clock_timestamp() + %d * interval '1 microsecond'", d.Microseconds())
	case core.MySQL:
		return fmt.Sprintf("UTC_TIMESTAMP(6) + INTERVAL %d MICROSECOND", d.Microseconds())
	}
	return fmt.Sprintf("CAST(unixepoch('subsec') * 1000000 AS INTEGER) + %d", d.Microseconds())
}

// relay does what a relay of this version does, and checks what it published.
func (u *upgrade) relay() {
	u.Helper()
	claimed := u.drain("retried", "new", "lost", "a1", "a2", "a3", "d0", "d1")
	for name, want := range map[string]core.Claimed{
		"retried": {Attempts: 2}, "new": {}, "lost": {LostClaims: 1}, "a1": {Attempts: 1}, "d0": {LostClaims: 1},
	} {
		if got := claimed[name]; got.Attempts != want.Attempts || got.LostClaims != want.LostClaims {
			u.Errorf("%s has %d attempts and %d lost claims, want %d and %d", name, got.Attempts, got.LostClaims,
				want.Attempts, want.LostClaims)
		}
	}
	// A mark of a refusal changes nothing if its process does not hold the claim. A mark that an
	// event was accepted always counts.
	changed, err := u.repo.MarkFailed(u.Context(), "living", []core.Failure{
		{ClaimRef: core.ClaimRef{ID: u.ids["held"], ClaimNo: 6}, Kind: core.FailDead},
		{ClaimRef: core.ClaimRef{ID: u.ids["c1"], ClaimNo: 1}, Kind: core.FailDead},
	})
	fixture.NoError(u.T, err)
	if changed[0] || changed[1] {
		u.Errorf("refusals of claims that the process does not hold changed %v", changed)
	}
	held := []core.Done{{ID: u.ids["held"]}, {ID: u.ids["c0"], Receipt: "place 3"}}
	n, err := u.repo.MarkDone(u.Context(), held, false)
	fixture.NoError(u.T, err)
	if n != 2 {
		u.Errorf("%d rows that a process of version 1 held could be marked, want 2", n)
	}
	u.drain("c1")

	dead, err := u.repo.ListDead(u.Context(), core.DeadQuery{})
	fixture.NoError(u.T, err)
	var poison []core.RowID
	for _, d := range dead {
		poison = append(poison, d.ID)
		if d.Attempts != 20 || d.Error != "poison" {
			u.Errorf("%s was listed with %d attempts and %q", d.Event.Type, d.Attempts, d.Error)
		}
	}
	if b, err := u.repo.Backlog(u.Context(), 100); err != nil || b.Dead != 2 || b.BlockedKeys != 1 || b.Pending != 5 {
		u.Errorf("backlog %+v, %v; want 5 pending, 2 dead, 1 key blocked", b, err)
	}
	admin := core.AdminRequest{IDs: poison, Actor: "ann", Reason: "mended"}
	if n, err := u.repo.Redrive(u.Context(), admin); err != nil || n != 2 || len(poison) != 2 {
		u.Errorf("%d of %d dead rows were redriven: %v", n, len(poison), err)
	}
	u.drain("dead", "b0", "b1", "b2")

	u.insert("a", 104, u.ids["a3"])
	u.insert("f", 601, u.ids["f0"])
	u.drain("a after 103", "f after 600")
	u.drain()
	for query, want := range map[string]int64{
		"event WHERE status = 1":                                       int64(len(oldRows)) + 2 - 4,
		"event WHERE status = 4 AND event_type = 'discarded'":          1,
		"event WHERE status = 0 AND event_type = 'delayed'":            1,
		"event WHERE status = 0 AND partition_key = 'e'":               2,
		"event WHERE receipt IN ('place 1', 'place 2') AND status = 1": 2,
		"event WHERE receipt = 'place 3' AND event_type = 'c0'":        1,
		"audit WHERE action = 'discard' AND actor = 'ann'":             1,
	} {
		if n := u.count(query); n != want {
			u.Errorf("%d rows of %s, want %d", n, query, want)
		}
	}
}

// insert publishes an event of a key. The event has the next number, and its row names the row
// before it.
func (u *upgrade) insert(key string, seq int64, before core.RowID) {
	u.Helper()
	tx, err := sqltx.Begin(u.Context(), u.pool, nil, u.d)
	fixture.NoError(u.T, err)
	defer func() { _ = tx.Rollback() }()
	row := sqlRow(u.T, upgradeTopic, key)
	places, err := u.repo.Insert(u.Context(), tx, core.InsertRequest{Rows: []core.NewRow{row}})
	fixture.NoError(u.T, err)
	fixture.NoError(u.T, tx.Commit())
	if p := places[0]; p.KeySeq != seq || p.Prev != before || p.Opened {
		u.Errorf("the next event of key %s is %+v, want number %d after %s", key, p, seq, before)
	}
	u.names[row.ID] = fmt.Sprintf("%s after %d", key, seq-1)
}

// drain claims and marks until nothing is due, and checks which events it got. Those without a key
// and those of each key must come in the given order.
func (u *upgrade) drain(want ...string) map[string]core.Claimed {
	u.Helper()
	all := map[string]core.Claimed{}
	got := map[string][]string{}
	for {
		u.claimNo++
		req := core.ClaimRequest{
			Node: "new", ClaimNo: u.claimNo, Lease: time.Minute, MaxLease: 15 * time.Minute, Limit: 2,
			MaxBytes: 1 << 20, Run: 2, Keys: 10,
		}
		rows, err := u.repo.ClaimUnordered(u.Context(), req)
		fixture.NoError(u.T, err)
		for after, more := (core.KeyID{}), true; more; more = !after.IsZero() {
			var heads []core.Claimed
			heads, after, err = u.repo.ClaimHeads(u.Context(), req, after)
			fixture.NoError(u.T, err)
			rows = append(rows, heads...)
		}
		if len(rows) == 0 {
			break
		}
		var done []core.Done
		for _, r := range rows {
			name := u.names[r.ID]
			if _, twice := all[name]; twice || r.Err != nil {
				u.Errorf("%s was claimed twice, or cannot be read: %v", name, r.Err)
			}
			all[name] = r
			got[r.Event.Key] = append(got[r.Event.Key], name)
			done = append(done, core.Done{ID: r.ID})
		}
		n, err := u.repo.MarkDone(context.WithoutCancel(u.Context()), done, false)
		fixture.NoError(u.T, err)
		if n != len(done) {
			u.Errorf("%d of %d rows were marked", n, len(done))
		}
	}
	wanted := map[string][]string{}
	for _, name := range want {
		key := ""
		if len(name) == 2 || strings.Contains(name, " ") {
			key = name[:1]
		}
		wanted[key] = append(wanted[key], name)
	}
	if !maps.EqualFunc(got, wanted, slices.Equal) {
		u.Errorf("claimed %v, want %v", got, wanted)
	}
	return all
}
