package repository_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
	"github.com/ormoutbox/ormoutbox/core/ops/sqlops"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// wrong are values that a row cannot have and that a person or another program can write. The table
// refuses some of them, and some do no harm.
var wrong = map[core.Dialect][]string{
	core.Postgres: {
		"headers = '[1]'", "available_at = '-infinity'", "available_at = 'infinity'", "available_at = '4000-01-01 BC'",
		"lease_until = 'infinity'", "created_at = 'infinity'", "created_at = '-infinity'", "occurred_at = 'infinity'",
		"occurred_at = '-infinity'", "done_at = 'infinity'", `lane = '\x0102'`, "lane = sha256('x')",
	},
	core.MySQL: {
		"headers = '[1]'", "available_at = '0000-00-00'", "available_at = '2020-00-00'", "available_at = '0001-01-01'",
		"available_at = '9999-12-31'", "lease_until = '2020-00-00'", "created_at = '0000-00-00'",
		"occurred_at = '2020-00-00'", "done_at = '0000-00-00'", "lane = x'0102'",
	},
	core.SQLite: {
		"headers = 'no json'", "schema_version = 'abc'", "occurred_at = 'yesterday'", "available_at = '2020-01-01'",
		"available_at = 1577836800000000.5", "lease_until = '2020-01-01'", "created_at = CURRENT_TIMESTAMP",
		"attempts = 'x'", "claim_no = 1.5", "claim_no = 'x'", "lost_claims = 'x'", "key_seq = 1.5", "key_seq = 'x'",
		"status = 0.5", "topic = x'61'", "done_at = CURRENT_TIMESTAMP", "lane = x'0102'",
		"lane = zeroblob(20)", "lane = 'x'",
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
		ob, err := core.New(core.Config{Repository: repo, Publisher: pub, Relay: relay.Config{DisableJanitor: true}})
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
		_, _, err = repo.Cleanup(t.Context(), cleanupOf(-time.Hour, 1000))
		fixture.NoError(t, err)
		if n := fixture.Count(t, pool, "SELECT COUNT(*) FROM outbox_event WHERE status = 1"); n != 0 {
			t.Errorf("%d published rows are left by the cleanup", n)
		}
	})
}

// What cannot be read of a row is not taken from the row before it.
func TestDamagedRowHasNothingOfAnother(t *testing.T) {
	t.Parallel()
	testdb.Every(t, func(t *testing.T, db testdb.DB) {
		pool, repo := openRepository(t, db)
		good, bad := sqlRow(t, "a", ""), sqlRow(t, "a", "")
		for _, row := range []core.NewRow{good, bad} {
			commitRows(t, pool, repo, core.InsertRequest{Rows: []core.NewRow{row}})
		}
		value := map[core.Dialect]string{
			core.Postgres: "occurred_at = 'infinity'", core.MySQL: "occurred_at = '2020-00-00'",
			core.SQLite: "occurred_at = 'yesterday'",
		}[db.Dialect]
		fixture.Must(t, damage(t, db, bad.ID, value), "the table does not take %s", value)
		rows, err := repo.ClaimUnordered(t.Context(), core.ClaimRequest{
			Node: "n", ClaimNo: 1, Lease: time.Minute, MaxLease: time.Hour, Limit: 10, MaxBytes: 1 << 20,
		})
		fixture.Must(t, err == nil && len(rows) == 2 && rows[0].ID == good.ID, "claimed %+v, %v", rows, err)
		is := rows[1]
		fixture.Check(t, is.Err != nil && is.Event.OccurredAt.Unix() == 0 && is.Event.Topic == "a", "claimed %+v", is)
	})
}

// A new event has no name with a character that is not seen. One that is in the table already is
// published as it is, and people can pause its topic and ask for it.
func TestHiddenCharacters(t *testing.T) {
	t.Parallel()
	testdb.Every(t, func(t *testing.T, db testdb.DB) {
		const hidden = "\u009b31m\u202e"
		pool, repo := openRepository(t, db)
		pub := &outboxtest.Publisher{}
		ob, err := core.New(core.Config{Repository: repo, Publisher: pub, Relay: relay.Config{DisableJanitor: true}})
		fixture.NoError(t, err)
		api, err := sqlops.New(ob)
		fixture.NoError(t, err)
		row := sqlRow(t, "topic"+hidden, "key"+hidden)
		insertHot(t, pool, repo, db.Dialect, row)
		_, err = repo.Release(t.Context(), "n", []core.ClaimRef{{ID: row.ID, ClaimNo: 1}})
		fixture.NoError(t, err)
		fixture.NoError(t, ob.Pause(t.Context(),
			core.PauseRequest{Topic: "topic" + hidden, Actor: "ann", Reason: hidden}))
		fixture.NoError(t, ob.Drain(t.Context()))
		why, err := api.Explain(t.Context(), row.ID.String())
		fixture.Check(t, err == nil && why[0].Reason == ops.ReasonPaused &&
			strings.Contains(why[0].Text, `topic\u009b31m\u202e is paused`), "explained by %+v, %v", why, err)
		resumed, err := ob.Resume(t.Context(), core.ResumeRequest{Topic: "topic" + hidden, Actor: "ann", Reason: "r"})
		fixture.Check(t, err == nil && resumed, "resumed: %t, %v", resumed, err)
		fixture.NoError(t, ob.Drain(t.Context()))
		got := pub.Accepted()
		fixture.Must(t, len(got) == 1, "%d of 1 arrived", len(got))
		fixture.Check(t, got[0].Topic == "topic"+hidden && got[0].Key == "key"+hidden, "arrived as %+v", got[0].Event)
	})
}

// A dead row with a wrong value is listed, shown, explained, planned and discarded as every other,
// alone and beside others, and none of its pages is endless.
func TestDamagedDeadRows(t *testing.T) {
	t.Parallel()
	testdb.Every(t, func(t *testing.T, db testdb.DB) {
		pool, repo := openRepository(t, db)
		pub := &outboxtest.Publisher{}
		pub.FailFor(func(core.Delivery) error { return core.Permanent(errors.New("refused")) })
		ob, err := core.New(core.Config{Repository: repo, Publisher: pub, Relay: relay.Config{DisableJanitor: true}})
		fixture.NoError(t, err)
		api, err := sqlops.New(ob)
		fixture.NoError(t, err)
		for _, value := range wrong[db.Dialect] {
			if strings.HasPrefix(value, "status") {
				continue // it is not dead then
			}
			bad, other := sqlRow(t, "a", value), sqlRow(t, "a", "other")
			insertHot(t, pool, repo, db.Dialect, bad, other)
			for _, row := range []core.NewRow{bad, other} {
				_, err := repo.Release(t.Context(), "n", []core.ClaimRef{{ID: row.ID, ClaimNo: 1}})
				fixture.NoError(t, err)
			}
			fixture.NoError(t, ob.Drain(t.Context()))
			damage(t, db, bad.ID, value) // or the table refuses it
			check := func(what string, ok bool, err error) {
				t.Helper()
				fixture.Check(t, err == nil && ok, "%s: %s: %t, %v", value, what, ok, err)
			}
			blocked := 0
			for _, statuses := range [][]ops.Status{{ops.StatusDead}, {ops.StatusDead, ops.StatusNew}} {
				q, listed, pages := ops.ListQuery{Filter: ops.Filter{Statuses: statuses}, Limit: 1}, 0, 0
				for ; pages < 20; pages++ {
					page, err := api.List(t.Context(), q)
					check("list", true, err)
					for _, e := range page.Events {
						if listed++; e.ID == bad.ID && !e.KeyID.IsZero() {
							blocked++
						}
					}
					if q.After = page.Next; page.Next == "" {
						break
					}
				}
				check(fmt.Sprintf("%d events on %d pages", listed, pages), listed == 2, nil)
			}
			check("it has no key", blocked == 2, nil)
			dead, err := ob.ListDead(t.Context(), core.DeadQuery{})
			check("dead", len(dead) == 2, err)
			rows, err := api.Rows(t.Context(), bad.ID, other.ID)
			check("rows", len(rows) == 2, err)
			shown, err := api.Show(t.Context(), bad.ID.String())
			check("show", len(shown) == 1, err)
			why, err := api.Explain(t.Context(), bad.ID.String())
			check("explain", len(why) == 1 && why[0].Reason == ops.ReasonDead, err)
			for _, action := range []ops.Action{ops.ActionRedrive, ops.ActionDiscard} {
				plan, err := api.PlanRows(t.Context(), action, bad.ID, other.ID)
				check("plan "+string(action), len(plan.IDs) == 2, err)
			}
			n, err := ob.Discard(t.Context(),
				core.AdminRequest{IDs: []core.RowID{bad.ID, other.ID}, Actor: "a", Reason: "r"})
			check("discard", n == 2, err)
		}
	})
}
