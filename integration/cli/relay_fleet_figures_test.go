package cli_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/longtest"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
	"github.com/ormoutbox/ormoutbox/integration/internal/wireproxy"
)

const (
	fleetQuiet = 25 * time.Second // until outboxes rest
	fleetRest  = 30 * time.Second // how long TestFleet counts
)

// fleetKind is a process of TestFleet, with the most that it may take.
type fleetKind struct {
	name        string
	outboxes    int
	connections int // to the server, also while it starts
	database    func(t *testing.T, server func(testdb.DB) testdb.DB) func(i int) (testdb.DB, sqloutbox.Config)
}

var fleetKinds = []fleetKind{
	{
		"SQLite, a file each", 200, 0,
		func(t *testing.T, _ func(testdb.DB) testdb.DB) func(i int) (testdb.DB, sqloutbox.Config) {
			return func(int) (testdb.DB, sqloutbox.Config) { return testdb.SQLite(t), sqloutbox.Config{} }
		},
	},
	{
		"PostgreSQL, a database each", 50, 50*5/2 + 8,
		func(t *testing.T, server func(testdb.DB) testdb.DB) func(i int) (testdb.DB, sqloutbox.Config) {
			return func(int) (testdb.DB, sqloutbox.Config) { return server(testdb.Postgres(t)), sqloutbox.Config{} }
		},
	},
	{
		"PostgreSQL, a prefix each in one database", 50, 8 + 1,
		func(t *testing.T, server func(testdb.DB) testdb.DB) func(i int) (testdb.DB, sqloutbox.Config) {
			db := server(testdb.Postgres(t))
			return func(i int) (testdb.DB, sqloutbox.Config) {
				return db, sqloutbox.Config{Prefix: fmt.Sprintf("o%d_", i)}
			}
		},
	},
}

// A process with many outboxes takes little of their databases and of the machine, at its start and
// at rest. The log is the table of docs/scaling.md.
func TestFleet(t *testing.T) {
	longtest.Mark(t)
	t.Parallel()
	_, err := program()
	fixture.NoError(t, err)
	for _, kind := range fleetKinds {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			kind.measure(t)
		})
	}
}

func (k *fleetKind) measure(t *testing.T) {
	proxy, err := wireproxy.New(fixture.ServerOf(t, testdb.Postgres(t)))
	fixture.NoError(t, err)
	t.Cleanup(proxy.Close)
	file := newFleetFile(t)
	var list []map[string]any
	next := k.database(t, func(db testdb.DB) testdb.DB { return fixture.Through(t, db, proxy, time.Minute) })
	for i := range k.outboxes {
		db, tables := next(i)
		tables.Dialect = db.Dialect
		pool := db.Open(t)
		fixture.NewRepository(t, pool, tables)
		fixture.NoError(t, pool.Close())
		one := map[string]any{
			"name": fmt.Sprint("o", i), "database_url": address(t, db), "to": testdb.Server(t, "OUTBOX_TEST_REDIS"),
		}
		if tables.Prefix != "" {
			one["prefix"] = tables.Prefix
		}
		list = append(list, one)
	}
	text, err := json.Marshal(map[string]any{"outboxes": list})
	fixture.NoError(t, err)
	fixture.NoError(t, os.WriteFile(file.path, text, 0o600))
	fixture.Await(t, "the connections of this test are closed", func() bool { return proxy.Connections() == 0 })

	began := time.Now()
	relay := startRelayWith(t, "OUTBOX_CONFIG="+file.path)
	atStart := 0
	watch := func() bool {
		atStart = max(atStart, proxy.Connections())
		return strings.Count(relay.log.String(), "msg=relaying") == k.outboxes
	}
	for !watch() && time.Since(began) < time.Minute {
		<-time.After(time.Millisecond)
	}
	started := time.Since(began)
	fixture.Await(t, "the relays are ready", relay.ready)
	for watch(); time.Since(began) < started+fleetQuiet; watch() { // nothing shows that they rest
		<-time.After(time.Millisecond)
	}
	trips, cpu, at := proxy.Trips(), relay.metric("process_cpu_seconds_total"), time.Now()
	<-time.After(fleetRest)
	outboxes, seconds := float64(k.outboxes), time.Since(at).Seconds()
	asked := float64(proxy.Trips()-trips) / seconds / outboxes
	cpu = (relay.metric("process_cpu_seconds_total") - cpu) / seconds
	atRest, files := proxy.Connections(), relay.metric("process_open_fds")
	memory, goroutines := relay.metric("process_resident_memory_bytes")/1e6, relay.metric("go_goroutines")/outboxes
	t.Logf("| %d | %s | %.1f s | %d | %d | %.1f | %.0f | %.0f MB | %.1f %% |", k.outboxes, k.name, started.Seconds(),
		atStart, atRest, asked, files, memory, 100*cpu)
	fixture.Check(t, atStart <= k.connections, "%d connections at the start, want at most %d", atStart, k.connections)
	fixture.Check(t, atRest <= k.connections, "%d connections at rest, want at most %d", atRest, k.connections)
	fixture.Check(t, asked <= 6, "%.1f round trips in a second for an outbox", asked)
	fixture.Check(t, memory/outboxes <= 4 && goroutines <= 20, "%.1f MB and %.1f goroutines for an outbox",
		memory/outboxes, goroutines)
	relay.terminate()
}

// metric returns a metric without labels.
func (p *relayProcess) metric(name string) float64 {
	p.t.Helper()
	for line := range strings.Lines(p.get("/metrics")) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			fixture.NoError(p.t, err)
			return n
		}
	}
	p.t.Fatalf("/metrics has no %s", name)
	return 0
}
