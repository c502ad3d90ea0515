package ui_test

import (
	"database/sql"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core/ops"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/longtest"
	"github.com/ormoutbox/ormoutbox/integration/internal/sqlrecord"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// With many rows each page sends a bounded number of statements, which read a bounded number of
// rows.
func TestManyRows(t *testing.T) {
	t.Parallel()
	manyRows(t, 60_000)
}

func TestAMillionRows(t *testing.T) {
	longtest.Mark(t)
	manyRows(t, 1_000_000)
}

func manyRows(t *testing.T, n int) {
	t.Helper()
	db := testdb.Postgres(t)
	var sent sqlrecord.Recorder
	db.Wrap = sent.Connector
	w := newWorld(t, db)
	w.Pool.SetMaxOpenConns(1) // one session counts all that is read
	w.fill(n)
	group := w.group()
	row := w.aRow()
	// Each may be the one that reads what the head of every page says, once in five seconds.
	for path, most := range map[string]struct{ statements, rows int }{
		// The overview counts 100,000 events of each of three kinds, by two statements.
		"": {60, 8 * 100_000}, "events": {22, 80_000}, "events?status=dead": {22, 80_000},
		"events?topic=t3":              {22, 80_000},
		"events?status=done&type=none": {22, 100_000}, "events/" + row: {40, 80_000}, "groups": {22, 80_000},
		"groups/" + group: {26, 140_000}, "keys": {130, 80_000}, "consumers": {22, 80_000}, "effects": {22, 80_000},
		"httpkeys": {22, 80_000}, "relays": {22, 80_000}, "plans": {22, 80_000}, "audit": {22, 80_000},
		"doctor":                                 {22, 80_000},
		"confirm?do=redrive&row=" + row:          {26, 80_000}, // A plan looks at every dead event until it has 10,000.
		"confirm?do=plan-redrive&group=" + group: {130, 620_000},
	} {
		before, began := w.read(), time.Now()
		sent.Start()
		w.get(path)
		calls := len(sent.Stop())
		took, read := time.Since(began), w.read()-before
		t.Logf("%-60.60s %3d statements %8d rows %s", path, calls, read, took.Round(time.Millisecond))
		if calls > most.statements || read > most.rows {
			t.Errorf("%s: %d statements read %d rows, more than %d and %d", path, calls, read, most.statements,
				most.rows)
		}
	}
}

// fill writes n rows: dead ones that block their keys, others behind them, unordered ones that
// wait, and done ones.
func (w *world) fill(n int) {
	w.T.Helper()
	const into = "INSERT INTO outbox_event (id, event_id, event_type, topic, partition_key, lane, key_seq, " +
		"payload, status, attempts, " +
		"available_at, occurred_at, created_at, done_at, last_error_code, last_error, error_group) "
	id := func(kind int) string {
		return fmt.Sprintf("('000000%02x-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid", kind)
	}
	lane := "decode('aabbccdd' || lpad(to_hex(n), 24, '0'), 'hex')"
	for kind, part := range []string{
		"'k' || n, " + lane + ", 1, 'p', 3, 1, now(), now(), now() - interval '1 hour', NULL, 'permanent', 'no ' " +
			"|| n, 'a' || (n % 20)",
		"'k' || n, " + lane + ", 2, 'p', 0, 0, now(), now(), now(), NULL, NULL, NULL, NULL",
		"NULL, NULL, NULL, 'p', 0, 0, now(), now(), now(), NULL, NULL, NULL, NULL",
		"NULL, NULL, NULL, 'p', 1, 0, now(), now(), now(), now(), NULL, NULL, NULL",
	} {
		fixture.MustExec(w.T, w.Pool, into+"SELECT "+id(kind+1)+", "+id(kind+1)+"::text, 'order.placed', 't' || "+
			"(n % 7), "+part+
			fmt.Sprintf(" FROM generate_series(1, %d) n", n/4))
	}
	fixture.MustExec(w.T, w.Pool, "ANALYZE")
}

func (w *world) group() string {
	w.T.Helper()
	all, err := w.api.Groups(w.T.Context(), ops.Filter{})
	fixture.NoError(w.T, err)
	return all.Groups[0].Fingerprint
}

func (w *world) aRow() string {
	w.T.Helper()
	page, err := w.api.List(w.T.Context(), ops.ListQuery{
		Filter: ops.Filter{Statuses: []ops.Status{ops.StatusDead}},
		Limit:  1,
	})
	fixture.NoError(w.T, err)
	return page.Events[0].ID.String()
}

// read is how many rows the database has read so far.
func (w *world) read() (n int) {
	w.T.Helper()
	fixture.MustExec(w.T, w.Pool, "SELECT pg_stat_force_next_flush()")
	var rows sql.NullInt64
	fixture.NoError(w.T, w.Pool.QueryRowContext(w.T.Context(),
		"SELECT (SELECT sum(seq_tup_read) FROM pg_stat_user_tables) + "+
			"(SELECT sum(idx_tup_read) FROM pg_stat_user_indexes)").Scan(&rows))
	return int(rows.Int64)
}

func (w *world) get(path string) {
	w.T.Helper()
	r, err := http.NewRequestWithContext(w.T.Context(), http.MethodGet, w.site+"shop/"+path, nil)
	fixture.NoError(w.T, err)
	res, err := http.DefaultClient.Do(r)
	fixture.NoError(w.T, err)
	text, err := io.ReadAll(res.Body)
	fixture.NoError(w.T, err)
	fixture.NoError(w.T, res.Body.Close())
	fixture.Check(w.T, res.StatusCode == http.StatusOK, "%s: %d %.2000s", path, res.StatusCode, text)
}
