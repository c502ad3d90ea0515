package cli_test

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// logSlot is the name of a replication slot, which is dropped when the test ends.
func logSlot(t *testing.T, db testdb.DB) string {
	t.Helper()
	slot := "cli_" + strings.ReplaceAll(core.NewEventID(), "-", "_")
	pool := db.Open(t)
	t.Cleanup(func() {
		fixture.Await(t, "the slot is dropped", func() bool { // a killed process may still hold the slot for a moment
			_, err := pool.Exec("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE " +
				"slot_name = '" + slot + "'")
			return err == nil
		})
	})
	return slot
}

// kill ends the relay with SIGKILL.
func (p *relayProcess) kill() {
	p.t.Helper()
	fixture.NoError(p.t, p.cmd.Process.Kill())
	_ = p.cmd.Wait()
}

// status returns the HTTP status of a probe.
func (p *relayProcess) status(path string) int {
	p.t.Helper()
	res, err := http.Get("http://" + p.address + path)
	if err != nil {
		return 0
	}
	_ = res.Body.Close()
	return res.StatusCode
}

// wantOrder requires that the first copies of the events of each key have arrived in their order.
func wantOrder(t *testing.T, arrived []string, keys map[string]string, published []string) {
	t.Helper()
	first, want := map[string][]string{}, map[string][]string{}
	seen := map[string]bool{}
	for _, id := range arrived {
		if !seen[id] {
			seen[id] = true
			first[keys[id]] = append(first[keys[id]], id)
		}
	}
	for _, id := range published {
		want[keys[id]] = append(want[keys[id]], id)
	}
	fixture.Check(t, maps.EqualFunc(first, want, slices.Equal), "first copies of each key\n%v\nwant\n%v", first, want)
}

// The command reads the log of PostgreSQL. It is killed in the middle and started again. A second
// process stands by and takes over. Every event arrives, and each key is in its order.
func TestRelayOfTheLog(t *testing.T) {
	t.Parallel()
	db := testdb.Postgres(t)
	slot := logSlot(t, db)
	var in inbound
	to, topic := brokers["kafka"](t, &in)
	if out, errs, code := outbox(t, db, "migrate", "up"); code != 0 {
		t.Fatal(out, errs)
	}
	start := func() *relayProcess {
		t.Helper()
		return startRelayWith(t, "DATABASE_URL="+address(t, db), "OUTBOX_TO="+to, "OUTBOX_SLOT="+slot,
			"OUTBOX_CREATE_SLOT=true")
	}
	service := serviceWith(t, db, core.Config{RelayedByLog: true})
	var published []string
	keys := map[string]string{}
	publish := func(n int) {
		t.Helper()
		for i, id := range service(topic, n) {
			published, keys[id] = append(published, id), keyOf(i)
		}
	}
	arrived := func() int {
		all := in.all()
		slices.Sort(all)
		return len(slices.Compact(all))
	}

	first := start()
	fixture.Await(t, "the relay is ready", first.ready)
	publish(1)
	fixture.Await(t, "the event arrives", func() bool { return arrived() == 1 })
	for range 20 {
		publish(50)
	}
	fixture.Await(t, "some of the many arrive", func() bool { return arrived() > 100 })
	first.kill()
	publish(50)

	second := start()
	fixture.Await(t, "all events arrive", func() bool { return arrived() == len(published) })
	wantOrder(t, in.all(), keys, published)
	fixture.Await(t, "the gauges of the slot", func() bool {
		all := second.get("/metrics")
		return strings.Contains(all, `outbox_log_slot_active{slot="`+slot+`"} 1`) &&
			strings.Contains(all, `outbox_log_spilled_keys{slot="`+slot+`"} 0`)
	})

	third := start()
	fixture.Await(t, "it stands by", func() bool { return strings.Contains(third.log.String(), "stands by") })
	if code, got := third.status("/readyz"), third.get("/readyz"); code != 200 ||
		!strings.Contains(got, `"relaying":false`) {
		t.Errorf("/readyz of the process that stands by: %d %s", code, got)
	}
	var gauges string
	fixture.Await(t, "the gauges of the process that stands by", func() bool {
		gauges = third.get("/metrics")
		return strings.Contains(gauges, `outbox_log_slot_active{slot="`+slot+`"} 1`)
	})
	fixture.Check(t, !strings.Contains(gauges, "outbox_log_spilled_keys{"),
		"the process that stands by has other gauges:\n%s", gauges)
	publish(50)
	second.terminate()
	publish(50)
	fixture.Await(t, "all events arrive", func() bool { return arrived() == len(published) })
	fixture.Await(t, "it relays", third.ready)
	wantOrder(t, in.all(), keys, published)
	fixture.Await(t, "the last event is known to be published", func() bool {
		out, _, _ := outbox(t, db, "explain", published[len(published)-1])
		return strings.Contains(out, "walrelay has published it, from slot "+slot)
	})
	if out, errs, _ := outbox(t, db, "status"); !strings.Contains(out, "slot "+slot+" is read by walrelay on ") {
		t.Errorf("status:\n%s%s", out, errs)
	}
	third.terminate()
	pool := db.Open(t)
	fixture.Await(t, "the server has noticed the end of the last reader", func() bool {
		return fixture.Count(t, pool, "SELECT COUNT(*) FROM pg_replication_slots WHERE active AND slot_name = '"+slot+
			"'") == 0
	})
	if out, errs, _ := outbox(t, db, "status"); !strings.Contains(out, "nobody reads slot "+slot) {
		t.Errorf("status without a relay:\n%s%s", out, errs)
	}
	if out, errs, _ := outbox(t, db, "list", "--newest", "--limit", "1"); !strings.Contains(out, "  done  ") {
		t.Errorf("the last event is published, and listed as:\n%s%s", out, errs)
	}

	// An operator moves back to polling. The slot is dropped, and the bookmark stays.
	fixture.MustExec(t, pool, "SELECT pg_drop_replication_slot('"+slot+"')")
	fixture.MustExec(t, pool, "DROP PUBLICATION "+slot)
	doctor := func(says, not string) {
		t.Helper()
		if out, errs, _ := outbox(t, db, "doctor"); !strings.Contains(out, says) || strings.Contains(out, not) {
			t.Errorf("doctor does not say %q, or says %q:\n%s%s", says, not, out, errs)
		}
	}
	doctor("slot "+slot+" of walrelay is gone, and walrelay had published all", "failure  log")

	// One process still leaves its events to the log. It publishes an event, and no relay sends it.
	publish(1)
	last := published[len(published)-1]
	doctor("failure  log: slot "+slot+" of walrelay is missing", "is gone")
	if out, errs, _ := outbox(t, db, "list", "--newest", "--limit", "1"); !strings.Contains(out, "  in the log  ") {
		t.Errorf("an event that no relay has published is listed as:\n%s%s", out, errs)
	}
	if out, errs, _ := outbox(t, db, "explain", last); strings.Contains(out, "outbox replay") ||
		!strings.Contains(out, "walrelay has not confirmed it yet, as of ") {
		t.Errorf("explain of an event that no relay has published:\n%s%s", out, errs)
	}
}

// If a person has to change something, the command ends. Its error names flags of the command, not
// fields of Config.
func TestRelayOfTheLogRefused(t *testing.T) {
	t.Parallel()
	pooler := testdb.PgBouncer(t)
	db := pooler.Direct(t)
	slot := logSlot(t, db)
	if out, errs, code := outbox(t, db, "migrate", "up"); code != 0 {
		t.Fatal(out, errs)
	}
	pool := db.Open(t)
	for _, c := range []struct {
		statement string
		db        testdb.DB
		args      []string
		want      string
	}{
		{"", db, nil, "start the relay once with --create-slot"},
		{"", pooler, []string{"--create-slot"}, "give --database-url that of PostgreSQL itself"},
		{
			"DROP PUBLICATION " + slot + "; CREATE PUBLICATION " + slot + " FOR TABLE outbox_key", db, nil,
			"drop it, and start the relay once with --create-slot",
		},
		{
			"DROP PUBLICATION " + slot + "; SELECT pg_create_logical_replication_slot('" + slot + "', 'pgoutput'); " +
				"INSERT INTO outbox_log SELECT '" + slot + "', 1, '0/0', '0/0', '0', now(), system_identifier, false " +
				"FROM pg_control_system()", db, []string{"--create-slot"}, "started once with --repair-slot always",
		},
	} {
		for statement := range strings.SplitSeq(c.statement, "; ") {
			fixture.MustExec(t, pool, statement)
		}
		args := append([]string{"relay", "--to", "redis://localhost:1", "--slot", slot}, c.args...)
		_, errs, code := outbox(t, c.db, args...)
		lines := strings.Split(strings.TrimSpace(errs), "\n")
		last := lines[len(lines)-1]
		fixture.Check(t, code == 1 && strings.Contains(last, c.want) && !strings.Contains(last, "Config."),
			"%q: exit code %d\n%s", args, code, errs)
	}
}
