package cli

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
)

// hostile has texts that a terminal obeys: it sets its title, colors what follows, turns the
// direction of the line, begins a line.
const hostile, hostileName = "\x1b]0;t\x07" + hostileName + "\nfix: it is fine", "\u009b31m\u202e"

// notOurs are the columns that name a thing for this program: another value would be no such thing.
var notOurs = []string{
	"outbox_event.event_id", "outbox_event.error_group", "outbox_event.headers", "outbox_event.causation_id",
	"outbox_relay.state", "outbox_group.fingerprint", "outbox_plan.id", "outbox_plan.action", "outbox_plan.state",
	"outbox_plan.filter", "inbox_failure.event_id", "inbox_handler.window", "side_effect_command.id",
}

// No command sends a text of the tables, of a relay or of a person to a terminal as it is. The tables
// are full of texts that a terminal obeys.
func TestTextsOfOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newSQLite)
	w.colors = true
	w.ok("migrate", "up", "--tables", "all")
	told, err := json.Marshal(map[string]any{"status": hostile, "problems": []string{hostile}})
	must(t, err)
	names := w.populate(string(told))
	w.ok("window", "declare", hostileName, hostileName, "--keep", "1h", "--reason", hostile, "--yes")
	w.ok("pause", "orders", "--reason", "x", "--yes")
	w.ok("rate", "mails", "--per-second", "5", "--reason", "x", "--yes")
	w.ok("groups", "note", names["group"], "x")
	var plan struct{ ID string }
	w.json(&plan, "redrive", "plan", "--reason", "x")
	names["plan"] = plan.ID
	w.beat(core.Heartbeat{
		Node: hostile, Host: hostile, Program: hostile, Version: hostile, Topics: []string{hostile},
		RelayState: core.RelayState{
			Stopped: []core.StoppedDestination{{Topic: hostile, Err: errors.New(hostile)}},
			PollErr: errors.New(hostile),
		},
	})
	w.taint()

	shown := 0
	check := func(r result, args []string) {
		t.Helper()
		for _, bad := range []string{"\x1b]", "\x07", "\u009b", "\u202e"} {
			if strings.Contains(r.out+r.err, bad) {
				t.Errorf("outbox %q prints %q:\n%q\n%q", args, bad, r.out, r.err)
			}
		}
		if strings.Contains(r.out, "\nfix: it is fine") && !slices.Contains(args, "--payload") {
			t.Errorf("a text begins a line of outbox %q:\n%s", args, r.out)
		}
		if strings.Contains(r.out+r.err, `\u009b31m\u202e`) {
			shown++
		}
	}
	for _, s := range slices.Concat(jsonLists, jsonBefore, jsonAfter) {
		for _, mean := range []bool{false, true} {
			args := strings.Fields(s.args)
			for i, arg := range args {
				switch name, ok := names[strings.Trim(arg, "{}")]; {
				case ok && mean && arg != "{listen}":
					args[i] = name + hostile
				case ok:
					args[i] = name
				case mean && slices.Contains([]string{"orders", "mails", "mailer", "search", "acme"}, arg):
					args[i] = arg + hostileName
				case mean && arg == "x":
					args[i] = hostile
				}
			}
			check(w.run(args...), args)
		}
	}
	for _, args := range [][]string{
		{"show", "--payload", names["event"]},
		{"list", "--cause", hostile},
		{"list", "--topic", hostile},
		{"inbox", "list", "--consumer", "mailer" + hostile},
		{"explain", hostile},
		{hostile},
		{"list", "--" + hostile},
		{"status", "--schema", hostile},
		{"list", "--prefix", hostile},
		{"list", "-d", "sqlite:" + hostile},
	} {
		check(w.run(args...), args)
	}
	if shown < 40 {
		t.Errorf("%d commands have shown the text: it is not where it was", shown)
	}
}

// beat writes a heartbeat.
func (w *world) beat(h core.Heartbeat) {
	w.Helper()
	repo, err := sqloutbox.New(w.open(), sqloutbox.Config{Dialect: w.dialect})
	must(w, err)
	must(w, repo.Beat(w.Context(), h))
}

// taint appends hostile to every text of every table of SQLite.
func (w *world) taint() {
	w.Helper()
	db := &database{DB: w.open()}
	var columns []string
	query := "SELECT m.name || '.' || c.name FROM sqlite_master m JOIN pragma_table_info(m.name) c " +
		"WHERE m.type = 'table' AND c.type = 'TEXT' AND m.name NOT LIKE '%migration'"
	must(w, db.each(w.Context(), query, nil, func(rows *sql.Rows) error {
		var name string
		err := rows.Scan(&name)
		columns = append(columns, name)
		return err
	}))
	headers, err := json.Marshal(map[string]string{"h": hostile, core.HeaderCausationID: hostile})
	must(w, err)
	w.exec("UPDATE outbox_event SET headers = ?, payload = CAST(? AS BLOB)", string(headers), hostile)
	for _, name := range columns {
		if slices.Contains(notOurs, name) {
			continue
		}
		table, column, _ := strings.Cut(name, ".")
		query = "UPDATE " + table + " SET " + column + " = " + column + " || ?"
		if table == "outbox_pause" { // windows have a text for this program
			query += " WHERE target NOT LIKE 'window:%'"
		}
		if _, err := db.ExecContext(context.Background(), query, hostile); err != nil {
			w.Errorf("%s: %v", name, err)
		}
	}
}
