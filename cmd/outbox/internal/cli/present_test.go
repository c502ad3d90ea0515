package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

// A person who forgets the prefix is told which outboxes there are.
func TestTablesElsewhere(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.ok("migrate", "up", "--prefix", "shop_")
		hint := "(the database has an outbox: `outbox status --prefix shop_`)"
		w.require(w.run("status"), ExitFailed, "there is no table outbox_event in ", hint,
			"if an outbox should be there, `outbox migrate up` creates the tables")
		w.require(w.run("list"), ExitFailed, hint)
		w.require(w.run("list", "--prefix", "shop2_"), ExitFailed, "`outbox migrate up --prefix shop2_` creates")
		w.require(w.run("dead"), ExitFailed, hint)
		w.require(w.run("doctor"), ExitUnhealthy, "the database has an outbox: `outbox status --prefix shop_`",
			"give doctor the flags of the outbox that is there")
		w.ok("status", "--prefix", "shop_")
		if w.dialect != core.Postgres {
			return
		}
		w.exec("CREATE SCHEMA app")
		w.ok("migrate", "up", "--schema", "app")
		w.require(w.run("status"), ExitFailed, "--prefix shop_`; an outbox: `outbox status --schema app`)")
		w.ok("status", "--schema", "app")
		w.require(w.run("status", "--schema", "nowhere"), ExitFailed, "`outbox status --schema app`",
			"`outbox migrate up --schema nowhere` creates")
	})
}

// In a database without an outbox, a person is told what it has, and that this may be right.
func TestDatabaseWithoutOutbox(t *testing.T) {
	t.Parallel()
	for tables, has := range map[string]string{
		"inbox": "an inbox: `outbox inbox", "keys": "idempotency keys: `outbox idempotency",
		"effects": "effects: `outbox effects",
	} {
		t.Run(tables, func(t *testing.T) {
			t.Parallel()
			each(t, func(w *world) {
				if w.dialect != core.SQLite { // there is no file
					w.require(w.run("status"), ExitFailed, "nor any other table of ormoutbox",
						"is it the right database?", "`outbox migrate up` creates the tables")
					w.require(w.run("doctor"), ExitUnhealthy, "there is no table outbox_event\n", "right database")
				}
				w.ok("migrate", "up", "--tables", tables)
				for _, command := range []string{"status", "audit", "list", "plans", "pauses", "window list", "keys"} {
					w.require(w.run(strings.Fields(command)...), ExitFailed, "there is no table outbox_event",
						"(the database has "+has+"`)", "if an outbox should be there")
				}
				_, command, _ := strings.Cut(has, "`outbox ")
				w.ok(command)
				code := ExitOK
				if w.dialect == core.Postgres { // the server of the tests does not sync
					code = ExitUnhealthy
				}
				w.require(w.run("doctor"), code,
					"warning  tables: there is no table outbox_event; the database has "+has,
					"otherwise nothing is wrong")
				w.require(w.run("doctor", "--strict"), ExitUnhealthy, "warning")
				w.requireFinding(levelWarning, "tables", has)

				w.ok("migrate", "up", "--tables", tables, "--prefix", "p_")
				flag := " --prefix p_`"
				if tables == "effects" {
					flag = " --effects-prefix p_`"
				}
				w.require(w.run("status"), ExitFailed, has+flag)
			})
		})
	}
}

// In a database with an outbox alone, commands about other tables say so.
func TestDatabaseWithoutOtherTables(t *testing.T) {
	migrated(t, func(w *world) {
		for command, tables := range map[string]string{
			"inbox": "inbox", "inbox list": "inbox", "effects": "effects", "idempotency": "keys",
		} {
			w.require(w.run(strings.Fields(command)...), ExitFailed, "(the database has an outbox: `outbox status`)",
				"`outbox migrate up --tables "+tables+"` creates the tables")
		}
	})
}

// Tables of another version are not called missing.
func TestTablesOfAnotherVersion(t *testing.T) {
	migrated(t, func(w *world) {
		w.exec("DROP TABLE outbox_pause")
		w.exec("ALTER TABLE outbox_event DROP COLUMN error_group")
		w.require(w.run("pauses"), ExitFailed, "the tables are not those of this version",
			"`outbox migrate validate` says what differs, and `outbox migrate up` upgrades them")
		for _, command := range []string{"list", "groups", "pause orders --reason x --yes"} { // a column is missing
			w.require(w.run(strings.Fields(command)...), ExitFailed, "the tables are not those of this version")
		}
		w.require(w.run("migrate", "validate"), ExitUnhealthy, "`outbox migrate up` creates or upgrades the tables")
		if r := w.run("migrate", "validate"); strings.Contains(r.out, "AutoCreate") {
			w.Errorf("the advice is for programs: %s", r.out)
		}
	})
}

func TestSpan(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"7d": 7 * 24 * time.Hour, "0d": 0, "-2d": -48 * time.Hour, "90s": 90 * time.Second, "2h30m": 150 * time.Minute,
		"0": 0,
	} {
		var s span
		if err := s.Set(text); err != nil || time.Duration(s) != want {
			t.Errorf("%s: %s, %v, want %s", text, time.Duration(s), err, want)
		}
	}
	for _, text := range []string{"", "d", "7", "1.5d", "99999999d", "7d2h", "a week"} {
		var s span
		if err := s.Set(text); err == nil {
			t.Errorf("%q is taken as %s", text, time.Duration(s))
		}
	}
}
