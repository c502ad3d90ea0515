package cli

import (
	"database/sql"
	"slices"
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/pgxoutbox/walrelay"
)

func TestLogReader(t *testing.T) {
	migrated(t, func(w *world) {
		w.publish(core.Event{Type: "order.placed", Topic: "orders"})
		var all []finding
		if w.list(&all, "findings", "doctor"); found(all, "log", "").Level != "" {
			w.Errorf("a reader of the log that nobody needs: %+v", all)
		}
		var s outboxState
		if w.json(&s, "status"); s.ByLog != nil {
			w.Errorf("status %+v", s)
		}

		w.exec("UPDATE outbox_event SET status = 1, claimed_by = 'log', done_at = created_at")
		w.publish(core.Event{Type: "order.placed", Topic: "orders"})
		const known = "1 of the newest 2 events are for a program that reads the log"
		w.requireFinding(levelOK, "log", known)
		if out := w.ok("status"); !strings.Contains(out, known) {
			w.Errorf("status printed %s", out)
		}
		if w.json(&s, "status"); s.ByLog == nil || s.ByLog.ByLog != 1 || s.Pending != 1 {
			w.Errorf("status %+v", s)
		}
		w.mentionsLog(true)
		w.exec("UPDATE outbox_event SET created_at = " + map[core.Dialect]string{
			core.Postgres: "created_at - interval '1 hour'", core.MySQL: "created_at - INTERVAL 1 HOUR",
			core.SQLite: "created_at - 3600000000",
		}[w.dialect] + " WHERE claimed_by = 'log'")
		w.mentionsLog(false) // nothing is known of a reader, and nobody publishes for one
		w.exec("DELETE FROM outbox_event WHERE status = 0")
		if out := w.ok("status"); strings.Contains(out, "no relay has told") {
			w.Errorf("status wants a relay: %s", out)
		}
		if w.dialect != core.Postgres {
			return
		}

		w.requireFinding(levelFailure, "log", "no publication has the inserts of")
		w.requireFinding(levelFailure, "log", "this database has no logical replication slot")
		w.exec("CREATE PUBLICATION p FOR TABLE outbox_event WITH (publish = 'delete')")
		w.requireFinding(levelFailure, "log", "no publication has the inserts of")
		w.exec("ALTER PUBLICATION p SET (publish = 'insert')")
		conn, err := w.open().Conn(w.Context())
		must(w, err)
		defer conn.Close()
		name := unique() // it is temporary: its connection reads it
		defer func() { _, _ = conn.ExecContext(w.Context(), "SELECT pg_drop_replication_slot('"+name+"')") }()
		must(w, errOf(conn.ExecContext(w.Context(),
			"SELECT pg_create_logical_replication_slot('"+name+"', 'pgoutput', true)")))
		w.requireFinding(levelOK, "log", "slot "+name+" is read")
		w.mentionsLog(true) // whether the reader of the slot has published them, no table knows
		w.requireFinding(levelWarning, "log", "the reader of slot "+name, "--max-log-behind", "-1")

		// The table becomes a partition, and the publication stays with it.
		for _, statement := range []string{
			"ALTER TABLE outbox_event RENAME TO outbox_event_before",
			"CREATE TABLE outbox_event (LIKE outbox_event_before INCLUDING DEFAULTS) PARTITION BY RANGE (id)",
			"CREATE TABLE outbox_event_default PARTITION OF outbox_event DEFAULT",
			"ALTER TABLE outbox_event ATTACH PARTITION outbox_event_before FOR VALUES FROM (MINVALUE) TO " +
				"('ffffffff-0000-0000-0000-000000000000')",
		} {
			w.exec(statement)
		}
		w.requireFinding(levelFailure, "log", "no publication has the inserts of")
		w.exec("ALTER PUBLICATION p ADD TABLE outbox_event_default")
		w.requireFinding(levelOK, "log", "slot "+name+" is read")
		w.exec("ALTER PUBLICATION p SET TABLE outbox_event")
		w.requireFinding(levelOK, "log", "slot "+name+" is read")
		w.exec("ALTER PUBLICATION p SET (publish_via_partition_root = true)")
		w.requireFinding(levelOK, "log", "slot "+name+" is read")
		w.exec("DROP PUBLICATION p")
		w.requireFinding(levelFailure, "log", "no publication has the inserts of")

		// The table of walrelay says which slots are its own.
		w.exec("CREATE TABLE outbox_log (slot text, node text, repairing boolean, confirmed pg_lsn, " +
			"checkpoint xid8 DEFAULT '0', checkpoint_at timestamptz DEFAULT now(), system_id text)")
		w.exec("INSERT INTO outbox_log VALUES ('" + name + "', 'vm-1', false, '0/0'), ('gone', NULL, false, '0/0')")
		w.requireFinding(levelOK, "log", "slot "+name+" is read by walrelay on vm-1")
		w.requireFinding(levelWarning, "log", "the reader of slot "+name, "--max-log-behind", "-1")
		w.requireFinding(levelFailure, "log", "slot gone of walrelay is missing")
		if out := w.run("doctor").out; !strings.Contains(out, `DELETE FROM "outbox_log" WHERE slot = 'gone'`) ||
			strings.Contains(out, "more than one slot") {
			w.Errorf("doctor does not say how to forget a slot, or counts it: %s", out)
		}
		w.exec(`DELETE FROM "outbox_log" WHERE slot = 'gone'`)
		if out := w.run("doctor").out; strings.Contains(out, "slot gone") {
			w.Errorf("the slot is not forgotten: %s", out)
		}
		w.exec("UPDATE outbox_log SET repairing = true")
		w.requireFinding(levelWarning, "log", "slot "+name+" was made, and walrelay on vm-1 publishes")

		// Two slots of walrelay publish each event twice.
		second := unique()
		defer func() { _, _ = conn.ExecContext(w.Context(), "SELECT pg_drop_replication_slot('"+second+"')") }()
		must(w, errOf(conn.ExecContext(w.Context(),
			"SELECT pg_create_logical_replication_slot('"+second+"', 'pgoutput', true)")))
		w.exec("INSERT INTO outbox_log VALUES ('" + second + "', 'vm-2', false, '0/0')")
		w.requireFinding(levelWarning, "log", "walrelay has more than one slot for \"outbox_event\"")
	})
}

// A publication of walrelay that somebody has changed is a failure before the next event is lost,
// whether a relay runs or not.
func TestDoctorComparesThePublication(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newPostgres)
	w.ok("migrate", "up")
	slot := w.readSlot()
	w.exec(`CREATE TABLE outbox_log (slot text, node text, repairing boolean, confirmed pg_lsn,
		checkpoint xid8 DEFAULT '0', checkpoint_at timestamptz DEFAULT now(), system_id text)`)
	w.exec("INSERT INTO outbox_log VALUES ('" + slot + "', 'vm-1', false, '0/0')")
	w.exec("CREATE PUBLICATION other FOR TABLE outbox_event") // as another program has it
	w.exec("CREATE PUBLICATION " + slot + " FOR TABLE outbox_event WHERE (claimed_by = 'log') " +
		"WITH (publish = 'insert', publish_via_partition_root = true)")
	about := func() (f []finding) {
		w.Helper()
		var all []finding
		w.list(&all, "findings", "doctor")
		return slices.DeleteFunc(all, func(f finding) bool {
			return f.Check != "log" || !strings.HasPrefix(f.Found, "publication")
		})
	}
	for _, events := range []bool{false, true} {
		if events {
			w.publish(core.Event{Type: "order.placed", Topic: "orders"})
			w.exec("UPDATE outbox_event SET status = 1, claimed_by = 'log', done_at = created_at")
		}
		for _, c := range [][2]string{
			{"SET (publish = 'update')", "does not have the inserts of"},
			{"DROP TABLE outbox_event", "does not have the table"},
			{"SET TABLE outbox_event WHERE (topic = 'orders')", "has only rows with"},
			{"SET TABLE outbox_event (id, topic)", "lacks columns of \"outbox_event\": event_id"},
		} {
			if f := about(); len(f) != 0 {
				t.Fatalf("the publication is right: %+v", f)
			}
			w.exec("ALTER PUBLICATION " + slot + " " + c[0])
			f := about()
			if len(f) != 1 || f[0].Level != levelFailure || !strings.Contains(f[0].Found, slot+" "+c[1]) {
				t.Fatalf("after %s: %+v", c[0], f)
			}
			statements, _, _ := strings.Cut(f[0].Fix, ": docs")
			for statement := range strings.SplitSeq(statements, "; ") {
				w.exec(statement) // mends it
			}
		}
		if f := about(); len(f) != 0 {
			t.Fatalf("the publication is right again: %+v", f)
		}
		w.exec("ALTER PUBLICATION " + slot + " SET TABLE outbox_event") // without the condition it has more
		if f := about(); len(f) != 0 {
			t.Fatalf("the publication has all rows: %+v", f)
		}
	}
}

// mentionsLog checks whether changes of what is published say that events in the log are not
// counted.
func (w *world) mentionsLog(want bool) {
	w.Helper()
	for _, change := range []string{"pause orders", "resume orders", "rate orders --per-second 1"} {
		r := w.run(append(strings.Fields(change), "--dry-run")...)
		w.require(r, ExitOK, "wait")
		if strings.Contains(r.err, "reads the log of the database are not among them") != want {
			w.Errorf("outbox %s mentions the log: %t\n%s", change, !want, r.err)
		}
	}
}

func TestLogReaderSlots(t *testing.T) {
	t.Parallel()
	safe := func(n int64) sql.NullInt64 { return sql.NullInt64{Int64: n << 20, Valid: true} }
	for text, s := range map[string]slot{
		"slot s is lost": {name: "s", status: "lost"},
		"slot s is lost: the server has removed log that its reader has not read, for the reason idle_timeout": {
			name: "s", status: "lost", invalid: "idle_timeout",
		},
		"nobody reads slot s, and the server keeps 3.0 MiB of log for it": {name: "s", kept: 3 << 20},
		"the reader of slot s is 2.0 MiB of log behind":                   {name: "s", active: true, behind: 2 << 20},
		"slot s is read, and 1.0 MiB of log behind":                       {name: "s", active: true, behind: 1 << 20},
		"slot s may be lost when 9.0 MiB more of log are written: the server keeps 20.0 MiB": {
			name: "s", active: true, kept: 20 << 20, safe: safe(9),
		},
		"slot s is read, and 0.0 MiB of log behind": {name: "s", active: true, kept: 20 << 20, safe: safe(10)},
		"the server holds back the events of slot s: synchronized_standby_slots names b": {
			name: "s", active: true, blocked: "b", behind: 2 << 20,
		},
		"slot s cannot follow to b:1: it has no copy": {
			name: "s", active: true,
			standbys: []walrelay.Standby{{Host: "a:1"}, {Host: "b:1", Unready: "it has no copy"}},
		},
	} {
		f := s.judge(1 << 20)
		if !strings.HasPrefix(f.Found, text) || (f.Level == levelOK) != (f.Fix == "" && f.Cause == "") {
			t.Errorf("%+v is judged %+v, want %q", s, f, text)
		}
		s.mark = &bookmark{slot: "s", node: "vm-1"}
		if s.confirmed = 7; s.status == "" && !s.active {
			f = s.judge(1 << 20)
			if !strings.Contains(f.Found, "is further than walrelay has read") ||
				!strings.Contains(f.Fix, "--repair-slot always") {
				t.Errorf("%+v, which somebody has moved, is judged %+v", s, f)
			}
		}
		s.mark.confirmed = 7
		f = s.judge(1 << 20)
		helps := strings.Contains(f.Fix, relayGuide) && !strings.Contains(f.Fix, "replay")
		if helps == (f.Level == levelOK) {
			t.Errorf("%+v of walrelay is judged %+v", s, f)
		}
	}
}

// A failover slot that is ready names the standbys, and not the servers that cannot take over.
func TestFailoverSlotIsReady(t *testing.T) {
	t.Parallel()
	s := slot{name: "s", active: true, standbys: []walrelay.Standby{{Host: "a:1"}, {Host: "b:1"}}}
	for _, s.mark = range []*bookmark{nil, {slot: "s", node: "vm-1"}} {
		if f := s.judge(1); f.Level != levelOK || !strings.HasSuffix(f.Found, ", and ready on a:1 and b:1") {
			t.Errorf("%+v", f)
		}
	}
}
