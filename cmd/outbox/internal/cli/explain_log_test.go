package cli

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
)

// If a reader of the log publishes an event, explain says what the tables and PostgreSQL know:
// pauses, whether a program reads the slot, and whether walrelay has published the event.
func TestExplainOfTheLog(t *testing.T) {
	migrated(t, func(w *world) {
		w.publish(core.Event{ID: "0199d7b0-0000-7000-8000-000000000001", Type: "order.placed", Topic: "orders"})
		w.exec("UPDATE outbox_event SET status = 1, claimed_by = 'log', done_at = created_at")
		explain := func(parts ...string) (out string) {
			w.Helper()
			out = w.ok("explain", "0199d7b0-0000-7000-8000-000000000001")
			for _, part := range parts {
				if !strings.Contains(out, part) {
					w.Errorf("explain does not say %q:\n%s", part, out)
				}
			}
			return out
		}
		const id = "0199d7b0-0000-7000-8000-000000000001"
		const unknown = "Its row does not say whether that program has published it."
		lists := func(log, says string) {
			w.Helper()
			status := inTheLog
			if log == logPublished {
				status = "done"
			}
			w.require(w.run("list"), ExitOK, status+"  ")
			w.require(w.run("show", id), ExitOK, "status    "+status+"\n", says)
			for _, command := range []string{"list", "show " + id, "list --status done"} {
				out := w.ok(append(strings.Fields(command), "--json")...)
				if !strings.Contains(out, `"status": "done"`) || !strings.Contains(out, `"log": "`+log+`"`) {
					w.Errorf("outbox %s --json has no log %q, or another status: %s", command, log, out)
				}
			}
			if out := w.ok("show", id); strings.Contains(out, "ended") {
				w.Errorf("the time of the insert is shown as its end: %s", out)
			}
		}
		r := w.run("list", "--json")
		_, row, _ := strings.Cut(r.out, `"id": "`)
		w.require(w.run("redrive", row[:36], "--dry-run"), ExitPartial,
			"was left to a reader of the log of the database", "`outbox explain "+row[:36]+"`")
		lists(logUnknown, "whether the reader of the log has published it, these tables do not know")
		w.ok("pause", "orders", "--reason", "INC-42", "--actor", "ada", "--yes")
		explain(unknown, "Destination orders is paused by ada since", "INC-42", "outbox resume orders")
		w.ok("resume", "orders", "--reason", "over", "--yes")
		if out := explain(unknown, "fix: See whether that program runs and how far it is: `outbox doctor`. Until "+
			"it is past the event, a replay sends the event twice."); strings.Contains(out, "paused") ||
			strings.Contains(out, "outbox replay") {
			w.Errorf("explain names a pause that is over, or advises a second copy:\n%s", out)
		}
		if w.dialect != core.Postgres {
			return
		}
		explain(unknown, "it has no logical replication slot")
		w.require(w.run("status"), ExitOK, "nobody reads the log: this database has no logical replication slot")

		name := unique()
		w.exec("SELECT pg_create_logical_replication_slot('" + name + "', 'pgoutput')")
		defer w.exec("SELECT pg_drop_replication_slot('" + name + "')")
		explain(unknown, "Nobody reads slot "+name, "fix: Start its reader (Debezium")
		w.exec(`CREATE TABLE outbox_log (slot text, node text, repairing boolean, checkpoint xid8, system_id text,
			confirmed pg_lsn DEFAULT 'FFFFFF/0', checkpoint_at timestamptz DEFAULT '2026-11-27 16:30:05Z')`)
		w.exec("INSERT INTO outbox_log VALUES ('" + name + "', 'vm-1', false, '0')")
		const notYet = "walrelay has not confirmed it yet, as of 2026-11-27 16:30:05Z"
		out := explain(unknown, "By table outbox_log, "+notYet, "Nobody reads slot "+name,
			"fix: Start its relay, walrelay (`outbox relay --slot "+name+"`")
		if strings.Contains(out, "outbox replay") {
			w.Errorf("explain advises a second copy:\n%s", out)
		}
		lists(logUnconfirmed, notYet)
		w.exec("INSERT INTO outbox_log VALUES ('gone', 'vm-1', true, '0')")
		explain(unknown, "Slot gone of walrelay is missing", "do not make the slot by hand")

		var s outboxState
		if w.json(&s, "status"); len(s.Slots) != 2 || s.Slots[0].Slot != name || s.Slots[0].Active || s.Slots[0].Lost ||
			s.Slots[0].Walrelay != "vm-1" || s.Slots[0].Kept == 0 || !s.Slots[1].Lost || !s.Slots[1].Repairing {
			w.Errorf("status has the slots %+v", s.Slots)
		}
		if out := w.ok("status"); !strings.Contains(out, "nobody reads slot "+name) ||
			!strings.Contains(out, "slot gone of walrelay is missing") {
			w.Errorf("status printed %s", out)
		}

		// While a repair goes on, its checkpoint proves nothing.
		w.exec("UPDATE outbox_log SET checkpoint = pg_snapshot_xmax(pg_current_snapshot()) WHERE repairing")
		explain(unknown, "Nobody reads slot "+name)
		w.exec("UPDATE outbox_log SET checkpoint = pg_snapshot_xmax(pg_current_snapshot())")
		out = explain("It was inserted at 20", " UTC, and walrelay has published it, from slot "+name+
			": table outbox_log says so.")
		if strings.Contains(out, "fix:") || strings.Contains(out, "Nobody reads") || strings.Contains(out, unknown) {
			w.Errorf("there is nothing to do about an event that is published:\n%s", out)
		}
		lists(logPublished, "walrelay has published it, from slot "+name)

		// The checkpoint of another server, of which the database is a copy, proves nothing.
		w.exec("UPDATE outbox_log SET system_id = '1'")
		explain(unknown, "walrelay has not confirmed it yet:", "Walrelay has read slot "+name+" on another server",
			"fix: If the events are to be sent from here, start the relay once with --repair-slot always")
		lists(logUnconfirmed, "walrelay has not confirmed it yet\n")
		w.requireFinding(levelFailure, "log", "walrelay has read slot gone on another server")
		w.exec("UPDATE outbox_log SET system_id = system_identifier FROM pg_control_system()")
		lists(logPublished, "walrelay has published it, from slot "+name)
		w.publish(core.Event{ID: "0199d7b0-0000-7000-8000-000000000002", Type: "order.placed", Topic: "orders"})
		w.exec("UPDATE outbox_event SET status = 1, claimed_by = 'log', done_at = created_at WHERE status = 0")
		out = w.ok("explain", "0199d7b0-0000-7000-8000-000000000002")
		if strings.Contains(out, "walrelay has published") {
			w.Errorf("an event after the checkpoint is said to be published:\n%s", out)
		}
	})
}

// walrelay keeps the events of a destination that is stopped in its memory. When they wait for
// long, a person is told where the destination is named.
func TestLateEventsOfTheLog(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newPostgres)
	w.ok("migrate", "up")
	first, second := core.NewEventID(), core.NewEventID()
	w.publish(core.Event{ID: first, Type: "paid", Topic: "orders"},
		core.Event{ID: second, Type: "paid", Topic: "mails"})
	w.exec("UPDATE outbox_event SET status = 1, claimed_by = 'log', done_at = created_at")
	w.exec("CREATE PUBLICATION p FOR TABLE outbox_event")
	name := w.readSlot()
	w.exec(`CREATE TABLE outbox_log (slot text, node text, repairing boolean, checkpoint xid8, confirmed pg_lsn,
		checkpoint_at timestamptz, system_id text)`)
	w.exec("INSERT INTO outbox_log VALUES ('" + name + "', 'vm-1', false, '0', 'FFFFFF/0', now())")

	const where, waits = "names each destination that a relay has stopped", "may be stopped, paused or limited"
	silent := func(commands ...string) {
		w.Helper()
		for _, command := range commands {
			if out := w.run(strings.Fields(command)...).out; strings.Contains(strings.ToLower(out), where) {
				w.Errorf("outbox %s tells where a stopped destination is named: %s", command, out)
			}
		}
	}
	tail := []string{"tail", "--since", "1h", "--limit", "2"}
	w.require(w.run(tail...), ExitOK, "in the log  orders  paid", "in the log  mails  paid")
	w.require(w.run(append(tail, "--json")...), ExitOK, `"status":"done"`, `"log":"unconfirmed"`)
	replay := strings.Fields("replay plan --topic orders --dedup-window 24h --dry-run")
	const twice = "walrelay has not confirmed 1 of them yet, as of 20"
	w.require(w.run(replay...), ExitOK, "1 done event", twice, "a replay sends them twice, perhaps before earlier")
	const justNow = "UPDATE outbox_event SET created_at = now()" // after 30 s they are late
	for _, command := range []string{"status", "doctor", "explain " + first} {
		w.exec(justNow)
		silent(command)
	}
	w.exec(justNow)
	w.requireFinding(levelOK, "log", "walrelay has not confirmed 2 of them yet, as of 20")
	w.exec("UPDATE outbox_event SET created_at = now() - interval '6 hours'")
	w.requireFinding(levelWarning, "log", "2 of the newest 2 events are for a program that reads the log")
	r := w.run("doctor") // what else it finds depends on the server
	w.require(r, r.code, "the oldest was inserted 6h0m ago; their destinations: mails, orders", waits, where)
	w.require(w.run("status"), ExitOK, "destinations: mails, orders", waits)
	w.require(w.run("explain", first), ExitOK, "It has waited for 6h0m", waits, where)
	var s outboxState
	if w.json(&s, "status"); s.ByLog == nil || s.ByLog.Unconfirmed == nil {
		w.Fatalf("%+v", s.ByLog)
	}
	if u := s.ByLog.Unconfirmed; u.N != 2 || u.OldestSecs < 300 || len(u.Topics) != 2 || u.AsOf == nil {
		w.Errorf("%+v", u)
	}

	w.exec("INSERT INTO outbox_log VALUES ('gone', 'vm-1', false, '0', '0/0', now())")
	silent("status", "doctor", "explain "+first) // a slot that is missing is why
	w.exec("DELETE FROM outbox_log WHERE slot = 'gone'")

	w.exec("UPDATE outbox_log SET checkpoint = pg_snapshot_xmax(pg_current_snapshot())")
	silent("status", "doctor", "explain "+first)
	if r := w.run(replay...); r.code != ExitOK || strings.Contains(r.err, "confirmed") {
		w.Errorf("the plan of a replay of what is published: %+v", r)
	}
	w.requireFinding(levelOK, "log", "walrelay has published all of them, as of 20")
}

// Somebody has moved back from the log to a relay that polls. doctor says so once, and does not
// fail, if walrelay had published everything.
func TestLeftoversOfTheLog(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newPostgres)
	w.ok("migrate", "up")
	w.publish(core.Event{Type: "paid", Topic: "orders"})
	w.exec("UPDATE outbox_event SET status = 1, claimed_by = 'log', done_at = created_at")
	w.exec(`CREATE TABLE outbox_log (slot text, node text, repairing boolean, checkpoint xid8, confirmed pg_lsn,
		checkpoint_at timestamptz, system_id text)`)
	w.exec("INSERT INTO outbox_log VALUES ('gone', 'vm-1', false, '0', '0/0', now())")
	const missing = "slot gone of walrelay is missing"
	const left = "slot gone of walrelay is gone, and walrelay had published all"
	w.requireFinding(levelFailure, "log", missing) // walrelay had not published the event
	w.mentionsLog(true)
	w.exec("UPDATE outbox_log SET checkpoint = pg_snapshot_xmax(pg_current_snapshot())")
	one := func(level, found string) {
		w.Helper()
		w.requireFinding(level, "log", found)
		var all []finding
		w.list(&all, "findings", "doctor")
		n := 0
		for _, f := range all {
			if f.Check == "log" {
				n++
			}
		}
		equal(w, n, 1, "doctor has findings about the log: %+v", all)
	}
	one(levelWarning, left) // the relay may just be down: the newest event is one of the log
	w.exec("UPDATE outbox_log SET repairing = true")
	w.requireFinding(levelFailure, "log", missing)
	w.exec("UPDATE outbox_log SET repairing = false")

	w.publish(core.Event{Type: "paid", Topic: "orders"})
	one(levelOK, left)
	w.mentionsLog(false) // walrelay has published all of its events
	const adopt = `UPDATE "outbox_event" SET claimed_by = NULL WHERE claimed_by = 'log'`
	const forget = `DELETE FROM "outbox_log" WHERE slot = 'gone'`
	w.require(w.run("doctor"), ExitUnhealthy, "if you have moved back to a relay that polls, leave these events to it",
		adopt+"; then forget the slot: "+forget+"; if not", "nobody relays orders")
	w.require(w.run("status"), ExitOK, left)
	var s outboxState
	if w.json(&s, "status"); len(s.Slots) != 1 || !s.Slots[0].LeftOver || !s.Slots[0].Lost {
		w.Errorf("status has the slots %+v", s.Slots)
	}

	// Events that nobody has published are behind many that a relay polls.
	w.publish(core.Event{Type: "paid", Topic: "orders"})
	w.exec("UPDATE outbox_event SET status = 1, claimed_by = 'log', done_at = created_at WHERE id = " +
		"(SELECT id FROM outbox_event ORDER BY id DESC LIMIT 1)")
	w.publish(slices.Repeat([]core.Event{{Type: "paid", Topic: "orders"}}, logSample)...)
	w.requireFinding(levelFailure, "log", missing)
	w.require(w.run("status"), ExitOK, missing)
	w.mentionsLog(true)

	w.exec("UPDATE outbox_log SET checkpoint = pg_snapshot_xmax(pg_current_snapshot())")
	w.exec(adopt)
	w.require(w.run("status"), ExitOK, "slot gone of walrelay is gone, and none of the newest events is for it")
	if out := w.run("doctor").out; strings.Contains(out, "slot gone") {
		w.Errorf("doctor has something to say about the log: %s", out)
	}
	w.mentionsLog(false)
	w.exec(forget)
	w.mentionsLog(false)
	if out := w.ok("status"); strings.Contains(out, "slot gone") {
		w.Errorf("the slot is not forgotten: %s", out)
	}
}

// readSlot makes a slot that is read until the end of the test, and then is gone.
func (w *world) readSlot() (name string) {
	w.Helper()
	db := w.open()
	conn, err := db.Conn(w.Context())
	must(w, err)
	name = unique() // it is temporary: its connection reads it
	must(w, errOf(conn.ExecContext(w.Context(),
		"SELECT pg_create_logical_replication_slot('"+name+"', 'pgoutput', true)")))
	w.Cleanup(func() {
		_, _ = conn.ExecContext(context.Background(), "SELECT pg_drop_replication_slot('"+name+"')")
		_ = conn.Close()
	})
	return name
}
