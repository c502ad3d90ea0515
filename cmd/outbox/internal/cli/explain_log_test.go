package cli

import (
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
)

// If a reader of the log publishes an event, explain says what the tables and PostgreSQL know:
// pauses, whether a program reads the slot, and whether walrelay has published the event.
func TestExplainOfTheLog(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.ok("migrate", "up")
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
		const unknown = "this table does not know."
		w.ok("pause", "orders", "--reason", "INC-42", "--actor", "ada", "--yes")
		explain(unknown, "Destination orders is paused by ada since", "INC-42", "outbox resume orders")
		w.ok("resume", "orders", "--reason", "over", "--yes")
		if out := explain(unknown, "outbox replay plan"); strings.Contains(out, "paused") {
			w.Errorf("explain names a pause that is over:\n%s", out)
		}
		if w.dialect != core.Postgres {
			return
		}
		explain(unknown, "it has no logical replication slot")

		name := unique()
		w.exec("SELECT pg_create_logical_replication_slot('" + name + "', 'pgoutput')")
		defer w.exec("SELECT pg_drop_replication_slot('" + name + "')")
		explain(unknown, "Nobody reads slot "+name, "fix: Start its reader (Debezium")
		w.exec(`CREATE TABLE outbox_log (slot text, node text, repairing boolean, checkpoint xid8,
			confirmed pg_lsn DEFAULT 'FFFFFF/0')`)
		w.exec("INSERT INTO outbox_log VALUES ('" + name + "', 'vm-1', false, '0')")
		explain(unknown, "Nobody reads slot "+name, "fix: Start its relay, walrelay (`outbox relay --slot "+name+"`")
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
		out := explain(unknown, "Table outbox_log does: walrelay has published it, from slot "+name+".")
		if strings.Contains(out, "fix:") || strings.Contains(out, "Nobody reads") {
			w.Errorf("there is nothing to do about an event that is published:\n%s", out)
		}
		w.publish(core.Event{ID: "0199d7b0-0000-7000-8000-000000000002", Type: "order.placed", Topic: "orders"})
		w.exec("UPDATE outbox_event SET status = 1, claimed_by = 'log', done_at = created_at WHERE status = 0")
		out = w.ok("explain", "0199d7b0-0000-7000-8000-000000000002")
		if strings.Contains(out, "walrelay has published") {
			w.Errorf("an event after the checkpoint is said to be published:\n%s", out)
		}
	})
}
