package cli

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/inbox/sqlinbox"
	oncekey "github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/once/command/sqlcommand"
	"github.com/ormoutbox/ormoutbox/core/once/sqlonce"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
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
	migrated(t, func(w *world) {
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

// The heartbeats of relays show the clocks of the nodes at which they were written.
func TestDoctorClocksOfNodes(t *testing.T) {
	migrated(t, func(w *world) {
		w.relays("orders")
		w.requireFinding(levelOK, "clock", "the clocks agree")
		clockAt := func(seconds string) {
			w.exec("UPDATE outbox_relay SET seen_at = " + fmt.Sprintf(map[core.Dialect]string{
				core.Postgres: "clock_timestamp() + interval '%s second'",
				core.MySQL:    "UTC_TIMESTAMP(6) + INTERVAL %s SECOND",
				core.SQLite:   "CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER) + 1000000 * %s",
			}[w.dialect], seconds))
		}
		clockAt("600")
		w.requireFinding(levelWarning, "clock", " ahead")

		clockAt("-20")
		ctx, stop := context.WithCancel(w.Context())
		var beats sync.WaitGroup
		beats.Go(func() {
			for ctx.Err() == nil {
				clockAt("-20")
				select {
				case <-time.After(100 * time.Millisecond):
				case <-ctx.Done():
				}
			}
		})
		w.requireFinding(levelWarning, "clock", "behind")
		stop()
		beats.Wait()
	})
}

// A destination that is down is what a relay says, whatever the error is.
func TestDestinationIsDown(t *testing.T) {
	t.Parallel()
	for err, says := range map[error]string{
		core.Unavailable(errors.New("no route to host")):                        "no route to host",
		core.Unavailable(fmt.Errorf("no answer: %w", context.DeadlineExceeded)): "no answer",
	} {
		each(t, func(w *world) {
			w.ok("migrate", "up")
			w.publish(core.Event{Type: "mail", Topic: "mails"},
				core.Event{Type: "order.placed", Topic: "orders", Key: "7"})
			w.requireFinding(levelOK, "destinations", "no relay that is alive")
			stop := w.relay(err)
			for _, topic := range []string{"mails", "orders"} {
				text := "destination " + topic + " is stopped at relay "
				w.await("the relay says so", func() bool { return strings.Contains(w.run("status").out, text) })
				w.requireFinding(levelFailure, "destinations", text)
				w.require(w.run("status"), ExitOK, text, says)
			}
			var s outboxState
			w.json(&s, "status")
			if len(s.Relays) != 1 || len(s.Relays[0].Stopped) != 2 || s.Relays[0].Stopped[0].Topic != "mails" ||
				!strings.Contains(s.Relays[0].Stopped[0].Error, says) || s.Relays[0].Stopped[0].Since.IsZero() {
				w.Errorf("%+v", s.Relays)
			}
			stop()
			w.requireFinding(levelOK, "destinations", "no relay that is alive")
			w.requireFinding(levelOK, "broker", "not checked", "--to", "redis://localhost:1")
		})
	}
}

// An event that its destination refused for itself, such as a full queue, stops no destination.
func TestARefusalIsNoOutage(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.ok("migrate", "up")
		w.publish(core.Event{Type: "order.placed", Topic: "orders", Key: "7"})
		w.drain(core.UnavailableForKey(errors.New("queue is full")), core.BlockKey)
		w.requireFinding(levelOK, "destinations", "no relay that is alive")
		if out := w.run("status").out; strings.Contains(out, "stopped") {
			w.Errorf("status says of a full queue:\n%s", out)
		}
	})
}

// Doctor finds an open transaction and unsafe settings of the server.
func TestDoctorServer(t *testing.T) {
	migrated(t, func(w *world) {
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
			w.requireFinding(levelOK, "silence", "nothing is hidden")
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
				must(w, errOf(conn.ExecContext(w.Context(), stmt)))
			}
			w.requireFinding(levelWarning, "vacuum", "1 dead tuples", "--max-dead-tuples", "0")
		case core.MySQL:
			w.requireFinding(levelOK, "isolation", "repeatable read")
			w.requireFinding(levelOK, "silence", "nothing is hidden")
		}
		tx, err := w.open().BeginTx(w.Context(), nil)
		must(w, err)
		defer tx.Rollback()
		must(w, errOf(tx.ExecContext(w.Context(), "UPDATE outbox_event SET attempts = attempts")))
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

// warner is a Repository of a database with dangers.
type warner struct{ core.Repository }

func (warner) Warnings(context.Context) ([]core.Warning, error) {
	return []core.Warning{{Found: "a node of a Galera cluster", Cause: "why", Fix: "what to do"}}, nil
}

// Doctor tells what the Repository warns of.
func TestDoctorSilence(t *testing.T) {
	t.Parallel()
	ob, err := core.New(core.Config{Repository: warner{outboxtest.NewRepository()}})
	must(t, err)
	x := &examination{
		report: report{check: "silence"}, session: &session{db: &database{dialect: core.MySQL}, ob: ob},
	}
	must(t, x.silence(t.Context()))
	equal(t, fmt.Sprint(x.all), "[{silence warning a node of a Galera cluster why what to do}]", "the findings")
}

// Doctor finds sessions that a pooler shares.
func TestDoctorPooler(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newPostgres)
	w.ok("migrate", "up")
	w.requireFinding(levelOK, "pooler", "direct connection")
	direct, err := url.Parse(w.address)
	must(t, err)
	through, err := url.Parse(server(t, "OUTBOX_TEST_PGBOUNCER"))
	must(t, err)
	through.Path, through.RawQuery = direct.Path, "default_query_exec_mode=exec"
	w.address = through.String()
	w.requireFinding(levelWarning, "pooler", "transaction mode")
}

// Doctor finds migrations that are missing or unknown, also those of other prefixes.
func TestDoctorVersions(t *testing.T) {
	migrated(t, func(w *world) {
		w.ok("migrate", "up", "--tables", "inbox")
		w.requireFinding(levelOK, "versions", "all tables are of this version")
		w.ok("migrate", "up", "--prefix", "shop_")
		w.requireFinding(levelOK, "versions", `another outbox has the prefix "shop_"`)
		w.exec("UPDATE shop_migration SET version = 0")
		w.requireFinding(levelWarning, "versions", `prefix "shop_" lack migration 0001_`)
		w.exec("UPDATE inbox_migration SET version = 0")
		w.requireFinding(levelWarning, "versions", `tables inbox of the prefix "" lack migration 0001_`)
		w.exec("UPDATE outbox_migration SET version = 99")
		w.requireFinding(levelWarning, "versions", "are of version 99")
	})
}

// Doctor finds two programs that share the name of a consumer.
func TestDoctorNames(t *testing.T) {
	migrated(t, func(w *world) {
		w.ok("migrate", "up", "--tables", "inbox")
		store, err := sqlinbox.New(w.open(), sqlinbox.Config{Dialect: w.dialect})
		must(t, err)
		register := func(handler, program, topic string) {
			_, err := store.Register(t.Context(), inbox.Registration{
				Consumer: "billing", Handler: handler, Program: program, Topic: topic,
			})
			must(t, err)
		}
		register("invoice", "example.com/a", "orders")
		register("mail", "example.com/b", "payments")
		w.requireFinding(levelOK, "names", "one program")
		register("invoice", "example.com/b", "payments")
		w.requireFinding(levelWarning, "names", "handler invoice of consumer billing is served by example.com/a "+
			"(topic orders) and example.com/b (topic payments)")
	})
}

// Doctor finds two programs whose keys of one scope are in one table.
func TestDoctorSharedScopes(t *testing.T) {
	migrated(t, func(w *world) {
		w.ok("migrate", "up", "--tables", "keys")
		store, err := sqlonce.New(w.open(), sqlonce.Config{Dialect: w.dialect})
		must(t, err)
		for _, r := range [][2]string{{"command/pay", "example.com/a"}, {"command/ship", "example.com/b"}} {
			_, err := store.Register(t.Context(), r[0], r[1])
			must(t, err)
		}
		w.requireFinding(levelOK, "names", "one program")
		_, err = store.Register(t.Context(), "command/pay", "example.com/b")
		must(t, err)
		w.requireFinding(levelWarning, "names", "the keys of command/pay are used by example.com/a and example.com/b")
	})
}

// Doctor finds two programs that read one slot of walrelay.
func TestDoctorSharedSlots(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newPostgres)
	w.ok("migrate", "up")
	name := w.readSlot()
	w.exec(`CREATE TABLE outbox_log (slot text, node text, repairing boolean, checkpoint xid8, confirmed pg_lsn,
		checkpoint_at timestamptz, system_id text)`) // of a version without programs
	w.exec("INSERT INTO outbox_log VALUES ('" + name + "', 'vm-1', false, '0', 'FFFFFF/0', now())")
	w.requireFinding(levelOK, "names", "one program")
	w.exec("ALTER TABLE outbox_log ADD COLUMN programs jsonb NOT NULL DEFAULT '{}'")
	w.exec(`UPDATE outbox_log SET programs = jsonb_build_object('example.com/a', now(), 'example.com/b',
		now() - interval '8 days')`)
	w.requireFinding(levelOK, "names", "one program")
	w.exec("UPDATE outbox_log SET programs = programs || jsonb_build_object('example.com/b', now())")
	w.requireFinding(levelWarning, "names", "slot "+name+" of walrelay is read by example.com/a and example.com/b")
}

// Doctor finds dead effects, and due effects whose event is gone.
func TestDoctorEffects(t *testing.T) {
	migrated(t, func(w *world) {
		w.ok("migrate", "up", "--tables", "effects")
		w.requireFinding(levelOK, "effects", "none is dead")
		id := w.deadEffect("1")
		w.requireFinding(levelWarning, "effects", "dead effects: 1 of mail")
		w.ok("effects", "redrive", id, "--reason", "x", "--yes")
		w.requireFinding(levelOK, "effects", "none is dead", "--max-overdue", "1us")
		w.exec("DELETE FROM outbox_event")
		w.requireFinding(levelOK, "effects", "none is dead", "--max-overdue", "1h")
		w.requireFinding(levelFailure, "effects", id, "--max-overdue", "1us")
	})
}

// Doctor finds an event that is kept for longer than consumers remember it.
func TestDoctorRetention(t *testing.T) {
	migrated(t, func(w *world) {
		w.requireFinding(levelOK, "retention", "no event", "--dedup-window", "1us")
		w.publish(core.Event{Type: "order.placed", Topic: "orders"})
		w.drain(nil, core.BlockKey)
		w.requireFinding(levelOK, "retention", "no event", "--dedup-window", "1h")
		w.requireFinding(levelWarning, "retention", "is still in the table", "--dedup-window", "1us")
	})
}

// Doctor finds topics of Kafka that lose events.
func TestDoctorKafka(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newSQLite)
	w.ok("migrate", "up")
	brokers := server(t, "OUTBOX_TEST_KAFKA")
	admin, err := kadm.NewOptClient(kgo.SeedBrokers(strings.Split(brokers, ",")...))
	must(t, err)
	defer admin.Close()
	topic, yes := unique(), "true"
	config := map[string]*string{"unclean.leader.election.enable": &yes}
	if _, err = admin.CreateTopic(t.Context(), 1, 1, config, topic); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = admin.DeleteTopic(context.Background(), topic) }()
	w.env["OUTBOX_TO"] = "kafka://" + brokers
	w.requireFinding(levelOK, "broker", "0 topics")
	w.publish(core.Event{Type: "order.placed", Topic: topic}, core.Event{Type: "mail", Topic: unique()})
	w.until(50*time.Millisecond, func() bool {
		var all []finding // the topic is known a moment after it was made
		w.list(&all, "findings", "doctor")
		return found(all, "broker", "topic "+topic+" has one replica").Level == levelWarning
	})
	w.requireFinding(levelWarning, "broker", "topic "+topic+" may elect a leader that lacks events")
	w.requireFinding(levelWarning, "broker", "Kafka has no topic")

	for _, c := range []struct {
		replicas int
		inSync   string
		unclean  string
		want     string
	}{
		{3, "2", "false", ""},
		{3, "1", "false", "min.insync.replicas=1 with 3 replicas"},
		{1, "1", "false", "one replica"},
		{3, "2", "true", "lacks events"},
	} {
		all := judgeTopic("orders", c.replicas, map[string]string{
			"min.insync.replicas": c.inSync, "unclean.leader.election.enable": c.unclean,
		})
		if c.want == "" != (len(all) == 0) || c.want != "" && found(all, "broker", c.want).Fix == "" {
			t.Errorf("%+v: %+v", c, all)
		}
	}
}

// hourBack moves the times of a column an hour back.
func (w *world) hourBack(table, column string) {
	w.Helper()
	w.exec("UPDATE " + table + " SET " + column + " = " + column + map[core.Dialect]string{
		core.Postgres: " - interval '1 hour'", core.MySQL: " - INTERVAL 1 HOUR", core.SQLite: " - 3600000000",
	}[w.dialect] + " WHERE " + column + " IS NOT NULL")
}

// Doctor finds events and effects that were taken over after their lease had ended.
func TestDoctorLeases(t *testing.T) {
	migrated(t, func(w *world) {
		w.ok("migrate", "up", "--tables", "effects")
		w.requireFinding(levelOK, "leases", "none of the newest rows")
		db := w.open()
		w.publish(core.Event{Type: "order.placed", Topic: "orders"}, core.Event{Type: "order.placed", Topic: "orders"})
		repo, err := sqloutbox.New(db, sqloutbox.Config{Dialect: w.dialect})
		must(w, err)
		for i, node := range []string{"first", "second"} {
			got, err := repo.ClaimUnordered(w.Context(), core.ClaimRequest{
				Node: node, ClaimNo: int64(i + 1), Limit: 1, Lease: time.Minute, MaxLease: time.Hour, MaxBytes: 1 << 20,
			})
			if err != nil || len(got) != 1 {
				w.Fatalf("%d rows, %v", len(got), err)
			}
			w.hourBack("outbox_event", "lease_until")
		}
		w.requireFinding(levelWarning, "leases", "relays lost the lease of 1 of the newest 2 events")
		w.exec("DELETE FROM outbox_event")

		w.deadEffect("0")
		id := w.deadEffect("1")
		w.ok("effects", "redrive", id, "--reason", "x", "--yes")
		store, err := sqlcommand.New(db, sqlcommand.Config{Dialect: w.dialect})
		must(w, err)
		for _, owner := range []string{"first", "second"} {
			if got, err := store.Claim(w.Context(), id, owner, time.Minute); err != nil || !got.Fresh {
				w.Fatalf("%+v, %v", got, err)
			}
			w.hourBack("side_effect_command", "lease_until")
		}
		w.requireFinding(levelWarning, "leases", "workers lost the lease of 1 of the newest 2 effects")
	})
}

// Doctor finds work that takes longer than its lease.
func TestDoctorKeyLeases(t *testing.T) {
	migrated(t, func(w *world) {
		w.ok("migrate", "up", "--tables", "keys")
		w.requireFinding(levelOK, "leases", "none of the newest rows")
		store, err := sqlonce.New(w.open(), sqlonce.Config{Dialect: w.dialect})
		must(w, err)
		runner, err := oncekey.New(oncekey.Config{Store: store})
		must(w, err)
		do := func(id string, work func()) {
			w.Helper()
			_, _, err := runner.Do(w.Context(), oncekey.Key{Scope: "charge", ID: id}, oncekey.Fingerprint{},
				func(context.Context) (oncekey.Result, error) {
					work()
					return oncekey.Result{}, nil
				})
			noError(w, err)
		}
		do("1", func() {})
		w.requireFinding(levelOK, "leases", "none of the newest rows", "--lease", "30s")
		w.hourBack("idempotency_key", "created_at")
		w.requireFinding(levelOK, "leases", "none of the newest rows")
		w.requireFinding(levelWarning, "leases", "work of charge takes 1h0m (p99 of 1), and its lease is 45s",
			"--lease", "45s")
		do("2", func() {
			w.requireFinding(levelWarning, "leases", "its lease is 30s")
			w.requireFinding(levelOK, "leases", "none of the newest rows", "--lease", "2h")
		})
	})
}
