package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

// found returns the finding of a check whose text contains the part.
func found(all []finding, check, part string) (f finding) {
	for _, f := range all {
		if f.Check == check && strings.Contains(f.Found, part) {
			return f
		}
	}
	return f
}

// requireFinding runs doctor, and requires a finding of that level with a cause and a fix.
func (w *world) requireFinding(level, check, part string, args ...string) {
	w.Helper()
	var all []finding
	code := w.list(&all, "findings", append([]string{"doctor"}, args...)...)
	f := found(all, check, part)
	if f.Level != level || (level != levelOK) != (f.Cause != "" && f.Fix != "") {
		w.Errorf("%s with %q is not a %s: %+v", check, part, level, all)
	}
	equal(w, (count(all, levelFailure) > 0), (code == ExitUnhealthy), "exit code %d with %+v", code, all)
}

func TestDoctor(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.ok("migrate", "up")
		for _, check := range []string{"tables", "clock", "relays", "dead"} {
			w.requireFinding(levelOK, check, "")
		}
		if out := w.run("doctor").out; !strings.Contains(out, "ok       tables: they are those of this version\n") {
			w.Errorf("doctor printed %s", out)
		}

		w.now = func() time.Time { return time.Now().Add(time.Hour) }
		w.requireFinding(levelWarning, "clock", "differ by 1h")
		w.now = nil

		w.publish(core.Event{Type: "order.placed", Topic: "orders"})
		w.requireFinding(levelFailure, "relays", "nobody relays orders")
		w.drain(core.Permanent(errors.New("no")), core.BlockKey)
		w.requireFinding(levelWarning, "dead", "given up: 1 event;")
		w.require(w.run("doctor", "--strict"), ExitUnhealthy)

		if w.dialect == core.SQLite {
			w.exec("DROP INDEX outbox_event_dead")
		} else {
			w.exec(map[core.Dialect]string{
				core.Postgres: "UPDATE pg_index SET indisvalid = false " +
					"WHERE indexrelid = 'outbox_event_dead'::regclass",
				core.MySQL: "DROP INDEX outbox_event_dead ON outbox_event",
			}[w.dialect])
		}
		w.requireFinding(levelFailure, "tables", "outbox_event_dead")
		w.require(w.run("doctor"), ExitUnhealthy, "fix: run `outbox migrate up`")
	})
}

// A destination that is down is known by the events that a relay has tried.
func TestDestinationIsDown(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.ok("migrate", "up")
		w.publish(core.Event{Type: "mail", Topic: "mails"}, core.Event{Type: "mail", Topic: "mails"},
			core.Event{Type: "order.placed", Topic: "orders", Key: "7"})
		w.requireFinding(levelOK, "destinations", "none is known")
		w.drain(core.Unavailable(errors.New("no route to host")), core.BlockKey)
		// Events that came later have no failure.
		w.publish(core.Event{Type: "mail", Topic: "mails"}, core.Event{Type: "order.placed", Topic: "orders", Key: "7"},
			core.Event{Type: "sms", Topic: "sms"})

		for _, topic := range []string{"mails", "orders"} {
			text := "destination " + topic + " did not take row "
			w.requireFinding(levelFailure, "destinations", text)
			w.require(w.run("status"), ExitOK, text)
		}
		w.require(w.run("doctor"), ExitUnhealthy, "unavailable, no route to host", "`outbox explain ")
		var s outboxState
		w.json(&s, "status")
		for _, topic := range s.Topics {
			if f := topic.Failure; (f == nil) != (topic.Topic == "sms") ||
				f != nil && (f.Code != "unavailable" || f.Error != "no route to host" || f.ID == "") {
				w.Errorf("%s: %+v", topic.Topic, f)
			}
		}
		w.exec("UPDATE outbox_event SET available_at = created_at")
		w.drain(nil, core.BlockKey)
		w.requireFinding(levelOK, "destinations", "none is known")
		w.requireFinding(levelOK, "broker", "not checked", "--to", "redis://localhost:1")
	})
}

// An outage that the publisher notices by its timeout has another code, and so has one of a topic
// without a queue.
func TestDestinationTimesOut(t *testing.T) {
	t.Parallel()
	for err, says := range map[error]string{
		core.Unavailable(fmt.Errorf("no answer: %w", context.DeadlineExceeded)): "timeout, no answer",
		core.Unroutable(errors.New("no queue")):                                 "unroutable, no queue",
	} {
		each(t, func(w *world) {
			w.ok("migrate", "up")
			w.publish(core.Event{Type: "mail", Topic: "mails"}, core.Event{Type: "order", Topic: "orders", Key: "7"})
			w.drain(err, core.BlockKey)
			for _, topic := range []string{"mails", "orders"} {
				text := "destination " + topic + " did not take row "
				w.requireFinding(levelFailure, "destinations", text)
				w.require(w.run("status"), ExitOK, text, says)
			}
		})
	}
}

// Doctor finds an open transaction and unsafe settings of the server.
func TestDoctorServer(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.ok("migrate", "up")
		switch w.dialect {
		case core.SQLite:
			w.requireFinding(levelOK, "durability", "synchronous is 2")
			w.address += "&_pragma=synchronous(OFF)"
			w.requireFinding(levelWarning, "durability", "synchronous is 0")
			return
		case core.Postgres:
			var name string
			db := w.open()
			must(w, db.QueryRowContext(w.Context(), "SELECT current_database()").Scan(&name))
			w.requireFinding(levelOK, "isolation", "read committed")
			w.requireFinding(levelOK, "vacuum", "dead tuples")
			w.exec("ALTER DATABASE " + name + " SET synchronous_commit = off")
			w.exec("ALTER DATABASE " + name + " SET default_transaction_isolation = 'serializable'")
			w.exec("ALTER TABLE outbox_event SET (autovacuum_enabled = false)")
			w.requireFinding(levelWarning, "durability", "synchronous_commit is off")
			w.requireFinding(levelWarning, "isolation", "serializable")
			w.requireFinding(levelFailure, "vacuum", "autovacuum is off")
			w.publish(core.Event{Type: "order.placed", Topic: "orders"})
			conn, err := w.open().Conn(w.Context())
			must(w, err)
			defer conn.Close()
			for _, stmt := range []string{
				"UPDATE outbox_event SET attempts = attempts", "SELECT pg_stat_force_next_flush()", "SELECT 1",
			} {
				if _, err := conn.ExecContext(w.Context(), stmt); err != nil {
					w.Fatal(err)
				}
			}
			w.requireFinding(levelWarning, "vacuum", "1 dead tuples", "--max-dead-tuples", "0")
		case core.MySQL:
			w.requireFinding(levelOK, "isolation", "repeatable read")
		}
		tx, err := w.open().BeginTx(w.Context(), nil)
		must(w, err)
		defer tx.Rollback()
		if _, err := tx.ExecContext(w.Context(), "UPDATE outbox_event SET attempts = attempts"); err != nil {
			w.Fatal(err)
		}
		// MariaDB repeats its last answer until nobody has asked for 100 ms.
		w.until(300*time.Millisecond, func() bool {
			var all []finding
			w.list(&all, "findings", "doctor", "--max-transaction", "1us")
			f := found(all, "transactions", "has been open for")
			return f.Level == levelWarning && f.Cause != "" && f.Fix != ""
		})
		w.requireFinding(levelOK, "transactions", "1h0m", "--max-transaction", "1h")
	})
}

// The test judges values that a test server cannot have.
func TestDoctorSettings(t *testing.T) {
	t.Parallel()
	for dialect, unsafe := range map[core.Dialect]map[string]string{
		core.Postgres: {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off"},
		core.MySQL:    {"innodb_flush_log_at_trx_commit": "2", "sync_binlog": "0"},
		core.SQLite:   {"synchronous": "1", "journal_mode": "delete"},
	} {
		for _, s := range durable[dialect] {
			if f := s.judge("durability", unsafe[s.name]); f.Level == levelOK || f.Cause == "" || f.Fix == "" {
				t.Errorf("%s: %+v", s.name, f)
			}
			if f := s.judge("durability", s.safe[0]); f.Level != levelOK {
				t.Errorf("%s: %+v", s.name, f)
			}
		}
	}
}
