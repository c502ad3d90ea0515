package repository_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// wrong are values that a row cannot have and that a person or another program can write. The table
// refuses some of them, and some do no harm.
var wrong = map[core.Dialect][]string{
	core.Postgres: {
		"headers = '[1]'", "available_at = '-infinity'", "available_at = 'infinity'", "available_at = '4000-01-01 BC'",
		"lease_until = 'infinity'", "created_at = 'infinity'", "created_at = '-infinity'", "occurred_at = 'infinity'",
		"occurred_at = '-infinity'", "done_at = 'infinity'",
	},
	core.MySQL: {
		"headers = '[1]'", "available_at = '0000-00-00'", "available_at = '2020-00-00'", "available_at = '0001-01-01'",
		"available_at = '9999-12-31'", "lease_until = '2020-00-00'", "created_at = '0000-00-00'",
		"occurred_at = '2020-00-00'", "done_at = '0000-00-00'",
	},
	core.SQLite: {
		"headers = 'no json'", "schema_version = 'abc'", "occurred_at = 'yesterday'", "available_at = '2020-01-01'",
		"available_at = 1577836800000000.5", "lease_until = '2020-01-01'", "created_at = CURRENT_TIMESTAMP",
		"attempts = 'x'", "claim_no = 1.5", "claim_no = 'x'", "lost_claims = 'x'", "key_seq = 1.5", "key_seq = 'x'",
		"status = 0.5", "topic = x'61'", "done_at = CURRENT_TIMESTAMP",
	},
}

// damage writes a wrong value into the row. It reports whether the table takes it.
func damage(t *testing.T, db testdb.DB, id core.RowID, value string) bool {
	t.Helper()
	pool := db.Open(t)
	defer pool.Close()
	pool.SetMaxOpenConns(1)
	row := fmt.Sprintf("x'%x'", id[:])
	switch db.Dialect {
	case core.MySQL: // as programs set it that write such dates
		fixture.MustExec(t, pool, "SET SESSION sql_mode = ''")
	case core.Postgres:
		row = "'" + id.String() + "'"
	case core.SQLite:
	}
	_, err := pool.ExecContext(t.Context(), "UPDATE outbox_event SET "+value+" WHERE id = "+row)
	return err == nil
}

// A row with a wrong value is refused by the table, is published, waits, or becomes dead. The relay,
// the cleanup and what people ask for go on with the others.
func TestDamagedRows(t *testing.T) {
	t.Parallel()
	testdb.Every(t, func(t *testing.T, db testdb.DB) {
		pool, repo := openRepository(t, db)
		pub := &outboxtest.Publisher{}
		ob, err := core.New(core.Config{Repository: repo, Publisher: pub, DisableJanitor: true})
		fixture.NoError(t, err)
		taken := 0
		for _, value := range wrong[db.Dialect] {
			for _, key := range []string{"", value} {
				bad := sqlRow(t, "a", key)
				good := []core.NewRow{sqlRow(t, "a", ""), sqlRow(t, "a", "good"), sqlRow(t, "b", "")}
				insertHot(t, pool, repo, db.Dialect, append(good, bad)...)
				for _, row := range append(good, bad) {
					_, err := repo.Release(t.Context(), "n", []core.ClaimRef{{ID: row.ID, ClaimNo: 1}})
					fixture.NoError(t, err)
				}
				if damage(t, db, bad.ID, value) {
					taken++
				}
				before := len(pub.Accepted())
				err := ob.Drain(t.Context())
				fixture.Check(t, err == nil, "%s, key %q: %v", value, key, err)
				others := 0
				for _, d := range pub.Accepted()[before:] {
					if d.RowID != bad.ID {
						others++
					}
				}
				fixture.Check(t, others == len(good), "%s, key %q: %d of %d other events arrived", value, key, others,
					len(good))
			}
			_, err := ob.Backlog(t.Context())
			fixture.Check(t, err == nil, "%s: backlog: %v", value, err)
			_, err = ob.ListDead(t.Context(), core.DeadQuery{Limit: 100})
			fixture.Check(t, err == nil, "%s: list of dead events: %v", value, err)
			_, _, err = repo.NextDue(t.Context(), core.ClaimRequest{Node: "n", MaxLease: time.Hour, Keys: 100})
			fixture.Check(t, err == nil, "%s: next due: %v", value, err)
		}
		fixture.Check(t, taken > 0, "the table takes no wrong value: this test shows nothing")
		_, err = repo.Cleanup(t.Context(), -time.Hour, 1000)
		fixture.NoError(t, err)
		if n := fixture.Count(t, pool, "SELECT COUNT(*) FROM outbox_event WHERE status = 1"); n != 0 {
			t.Errorf("%d published rows are left by the cleanup", n)
		}
	})
}
