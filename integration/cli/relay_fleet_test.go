package cli_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
	"github.com/ormoutbox/ormoutbox/integration/internal/wireproxy"
)

// fleetOutbox is one of many outboxes that a process relays.
type fleetOutbox struct {
	t       *testing.T
	name    string
	db      testdb.DB
	tables  sqloutbox.Config
	in      inbound
	to      string
	topic   string
	want    []string
	workers int
	poll    string // --poll-interval; empty: the default
}

func newFleetOutbox(t *testing.T, name string, db testdb.DB) *fleetOutbox {
	t.Helper()
	o := &fleetOutbox{t: t, name: name, db: db, workers: 4}
	o.to, o.topic = brokers["redis"](t, &o.in)
	return o
}

func (o *fleetOutbox) migrate() *fleetOutbox {
	o.t.Helper()
	if out, errs, code := outbox(o.t, o.db, "migrate", "up"); code != 0 {
		o.t.Fatal(out, errs)
	}
	return o
}

// relays requires that a new event arrives, once and after all before it.
func (o *fleetOutbox) relays() {
	o.t.Helper()
	o.want = append(o.want, o.publish()...)
	fixture.Await(o.t, "the event of "+o.name+" arrives", func() bool { return slices.Equal(o.in.all(), o.want) })
}

// publish publishes an event, in a process without a relay.
func (o *fleetOutbox) publish() []string {
	o.t.Helper()
	pool := fixture.TrackedPool(o.t, o.db)
	tables := o.tables
	tables.Dialect = o.db.Dialect
	repo, err := sqloutbox.New(pool, tables)
	fixture.NoError(o.t, err)
	ob, err := core.New(core.Config{Repository: repo})
	fixture.NoError(o.t, err)
	var ids []string
	fixture.NoError(o.t, sqltx.NewTransactor(pool, o.db.Dialect).RunInTx(o.t.Context(),
		func(ctx context.Context, tx core.Tx) (err error) {
			ids, err = ob.Publish(ctx, tx, core.Event{Type: "order.placed", Topic: o.topic, Payload: []byte("{}")})
			return err
		}))
	return ids
}

// nodes are the relays that are alive by their heartbeats.
func (o *fleetOutbox) nodes() []string {
	o.t.Helper()
	return fixture.Query(o.t, o.db.Open(o.t), "SELECT node FROM outbox_relay ORDER BY node",
		func(rows *sql.Rows) (node string, err error) { return node, rows.Scan(&node) })
}

// fleetFile is the file of --config.
type fleetFile struct {
	t    *testing.T
	path string
}

func newFleetFile(t *testing.T) fleetFile {
	return fleetFile{t: t, path: filepath.Join(t.TempDir(), "relay.json")}
}

func (f fleetFile) write(outboxes ...*fleetOutbox) {
	f.t.Helper()
	var list []map[string]any
	for _, o := range outboxes {
		one := map[string]any{"name": o.name, "database_url": address(f.t, o.db), "to": o.to, "workers": o.workers}
		for name, value := range map[string]string{
			"schema": o.tables.Schema, "prefix": o.tables.Prefix, "poll_interval": o.poll,
		} {
			if value != "" {
				one[name] = value
			}
		}
		list = append(list, one)
	}
	text, err := json.Marshal(map[string]any{"outboxes": list})
	fixture.NoError(f.t, err)
	fixture.NoError(f.t, os.WriteFile(f.path, text, 0o600))
}

// reload sends SIGHUP, and awaits a line of the log.
func (p *relayProcess) reload(line string) {
	p.t.Helper()
	before := strings.Count(p.log.String(), line)
	fixture.NoError(p.t, p.cmd.Process.Signal(syscall.SIGHUP))
	p.await(line, before+1)
}

func (p *relayProcess) await(line string, times int) {
	p.t.Helper()
	fixture.Await(p.t, "the log has "+line, func() bool { return strings.Count(p.log.String(), line) >= times })
}

// SIGHUP adds, removes and changes outboxes of a running relay. The others do not notice, and a file
// with a mistake changes nothing.
func TestRelayReloads(t *testing.T) {
	t.Parallel()
	stays := newFleetOutbox(t, "stays", testdb.Postgres(t)).migrate()
	goes := newFleetOutbox(t, "goes", testdb.SQLite(t)).migrate()
	changes := newFleetOutbox(t, "changes", testdb.SQLite(t)).migrate()
	comes := newFleetOutbox(t, "comes", testdb.Postgres(t)).migrate()
	file := newFleetFile(t)
	file.write(stays, goes, changes)
	relay := startRelayWith(t, "OUTBOX_CONFIG="+file.path)
	fixture.Await(t, "the relays are ready", relay.ready)
	for _, o := range []*fleetOutbox{stays, goes, changes} {
		o.relays()
	}
	before := stays.nodes()
	fixture.Must(t, len(before) == 1, "the relays %v, want one", before)
	unchanged := func() {
		t.Helper()
		now := stays.nodes()
		fixture.Check(t, slices.Equal(now, before), "the relay that stays was %v and is %v", before, now)
	}

	changes.workers = 5
	file.write(stays, changes, comes)
	relay.reload("the file was read again")
	for _, o := range []*fleetOutbox{comes, changes, stays} {
		o.relays()
	}
	fixture.Await(t, "the relays are ready", relay.ready)
	fixture.Await(t, "the relay that was removed has ended in order", func() bool { return len(goes.nodes()) == 0 })
	unchanged()
	line := lastLine(relay, "the file was read again")
	for _, want := range []string{"added=[comes]", "changed=[changes]", "removed=[goes]", "outboxes=3"} {
		fixture.Check(t, strings.Contains(line, want), "%s: want %s", line, want)
	}
	metrics := relay.get("/metrics")
	for name, want := range map[string]bool{"stays": true, "comes": true, "changes": true, "goes": false} {
		fixture.Check(t, strings.Contains(metrics, `outbox="`+name+`"`) == want, "/metrics has %s: %t", name, !want)
	}

	for text, want := range map[string]string{
		`{"outboxes": []}`:                          "it has no outboxes",
		`{"outboxes": [{"name": "stays"}]`:          "unexpected EOF",
		`{"outboxes": [{"name": "stays", "x": 1}]}`: "database_url is missing",
	} {
		fixture.NoError(t, os.WriteFile(file.path, []byte(text), 0o600))
		relay.reload("the file is refused")
		line := lastLine(relay, "the file is refused")
		fixture.Check(t, strings.Contains(line, want), "%s: want %s", line, want)
	}
	ready := relay.get("/readyz")
	told := strings.Contains(ready, `"status":"degraded"`) && strings.Contains(ready, "database_url is missing")
	fixture.Check(t, told, "after a refused file: %s", ready)
	refused := func() bool { return strings.Contains(relay.get("/metrics"), "\noutbox_config_refused 1") }
	fixture.Check(t, refused(), "no metric says that the file was refused")
	file.write(stays, changes, comes)
	relay.reload("the file was read again")
	fixture.Await(t, "the relays are ready", relay.ready)
	fixture.Check(t, !refused(), "the metric says that the file was refused")
	for _, o := range []*fleetOutbox{stays, changes, comes} {
		o.relays()
	}
	unchanged()
	relay.terminate()
	for _, o := range []*fleetOutbox{stays, changes, comes} {
		fixture.Check(t, len(o.nodes()) == 0, "%s: the relays %v are left", o.name, o.nodes())
	}
}

// An outbox that is removed and comes back begins when its publishes have ended.
func TestRelayComesBack(t *testing.T) {
	t.Parallel()
	stays := newFleetOutbox(t, "stays", testdb.SQLite(t)).migrate()
	slow := newFleetOutbox(t, "slow", testdb.SQLite(t)).migrate()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	fixture.NoError(t, err)
	t.Cleanup(func() { _ = silent.Close() })
	slow.to = "redis://" + silent.Addr().String()
	slow.publish()
	file := newFleetFile(t)
	file.write(stays, slow)
	relay := startRelayWith(t, "OUTBOX_CONFIG="+file.path)
	publishing, err := silent.Accept()
	fixture.NoError(t, err)
	defer publishing.Close()
	for _, outboxes := range [][]*fleetOutbox{{stays}, {stays, slow}} {
		file.write(outboxes...)
		relay.reload("the file was read again")
	}
	relay.await("msg=relaying outbox=slow", 2)
	fixture.Check(t, !strings.Contains(relay.log.String(), "level=ERROR"), "it has failed:\n%s", relay.log)
	relay.terminate()
}

// SIGHUP while the file is read for the first time ends no process.
func TestRelayHangupBeforeItBegins(t *testing.T) {
	t.Parallel()
	path, err := program()
	fixture.NoError(t, err)
	pipe := filepath.Join(t.TempDir(), "relay.json")
	fixture.NoError(t, syscall.Mkfifo(pipe, 0o600))
	cmd := exec.Command(path, "relay", "--check", "--config", pipe)
	fixture.NoError(t, cmd.Start())
	file, err := os.OpenFile(pipe, os.O_WRONLY, 0) // returns when the process reads
	fixture.NoError(t, err)
	fixture.NoError(t, cmd.Process.Signal(syscall.SIGHUP))
	_, err = file.WriteString(`{"outboxes": [{"name": "a", "database_url": "mysql://h/a", "to": "redis://r"}]}`)
	fixture.NoError(t, err)
	fixture.NoError(t, file.Close())
	fixture.NoError(t, cmd.Wait())
}

// lastLine returns the last line of the log with a text.
func lastLine(p *relayProcess, text string) (last string) {
	for line := range strings.Lines(p.log.String()) {
		if strings.Contains(line, text) {
			last = line
		}
	}
	return last
}

// A relay without a file survives SIGHUP, and says that it changes nothing.
func TestRelayWithoutFileReloadsNothing(t *testing.T) {
	t.Parallel()
	o := newFleetOutbox(t, "", testdb.SQLite(t)).migrate()
	relay := startRelay(t, o.db, o.to)
	fixture.Await(t, "the relay is ready", relay.ready)
	relay.reload("SIGHUP changes nothing")
	o.relays()
	relay.terminate()
}

// Databases that are broken when the process starts, or later, do not stop the relays of the others.
// Their own relays begin when they can.
func TestBrokenDatabaseStopsNoOther(t *testing.T) {
	t.Parallel()
	well := newFleetOutbox(t, "well", testdb.SQLite(t)).migrate()
	empty := newFleetOutbox(t, "empty", testdb.Postgres(t)) // without tables
	lost := newFleetOutbox(t, "lost", testdb.SQLite(t))     // without its file
	db := testdb.Postgres(t)
	away := newFleetOutbox(t, "away", db).migrate()
	proxy, err := wireproxy.New(fixture.ServerOf(t, db))
	fixture.NoError(t, err)
	t.Cleanup(proxy.Close)
	proxy.Away(true)
	away.db = fixture.Through(t, db, proxy, time.Minute)
	file := newFleetFile(t)
	file.write(empty, lost, away, well)
	away.db = db // of its service
	relay := startRelayWith(t, "OUTBOX_CONFIG="+file.path)
	well.relays()
	for _, name := range []string{"empty", "lost"} {
		relay.await(fmt.Sprintf("it is started again\" outbox=%s ", name), 2)
	}
	remedy := strings.Contains(relay.log.String(), "outbox migrate up")
	fixture.Check(t, remedy, "the log names no remedy:\n%s", relay.log)
	ready, live := relay.get("/readyz"), relay.get("/healthz")
	for _, name := range []string{"empty", "lost", "away"} {
		fixture.Check(t, strings.Contains(ready, "outbox "+name+": "), "/readyz: %s", ready)
	}
	degraded := strings.Contains(ready, `"status":"degraded"`) && !strings.Contains(ready, "outbox well")
	fixture.Check(t, degraded, "/readyz: %s", ready)
	metrics := relay.get("/metrics")
	for name, up := range map[string]int{"well": 1, "away": 1, "empty": 0, "lost": 0} {
		line := fmt.Sprintf("outbox_relay_up{outbox=%q} %d\n", name, up)
		fixture.Check(t, strings.Contains(metrics, line), "/metrics has no line %s", line)
	}
	fixture.Check(t, strings.Contains(live, `"status":"ok"`), "/healthz: %s", live)

	proxy.Away(false)
	empty.migrate().relays()
	lost.migrate().relays()
	away.relays()
	fixture.Await(t, "all relays are ready", relay.ready)

	proxy.Away(true)
	fixture.Await(t, "the probe sees it", func() bool { return !relay.ready() })
	for _, o := range []*fleetOutbox{well, empty, lost} {
		o.relays()
	}
	proxy.Away(false)
	away.relays()
	relay.terminate()
}

// Outboxes in one database share its connections, of which one listens for the commits of all. They
// poll too seldom to find an event without it.
func TestOutboxesOfOneDatabase(t *testing.T) {
	t.Parallel()
	db := testdb.Postgres(t)
	proxy, err := wireproxy.New(fixture.ServerOf(t, db))
	fixture.NoError(t, err)
	t.Cleanup(proxy.Close)
	through := fixture.Through(t, db, proxy, time.Minute)
	pool := db.Open(t)
	var all []*fleetOutbox
	const outboxes = 12
	for i := range outboxes {
		o := newFleetOutbox(t, fmt.Sprint("o", i), db)
		o.poll, o.tables = "1h", sqloutbox.Config{Dialect: db.Dialect, Prefix: fmt.Sprintf("o%d_", i)}
		if i%2 == 0 {
			o.tables.Schema, o.tables.Prefix = fmt.Sprint("s", i), ""
			fixture.MustExec(t, pool, "CREATE SCHEMA "+o.tables.Schema)
		}
		fixture.NewRepository(t, pool, o.tables)
		all = append(all, o)
	}
	file := newFleetFile(t)
	write := func(outboxes []*fleetOutbox) {
		for _, o := range outboxes {
			o.db = through
		}
		file.write(outboxes...)
		for _, o := range outboxes { // of its service
			o.db = db
		}
	}
	relay := func(outboxes []*fleetOutbox) {
		t.Helper()
		for _, o := range outboxes {
			o.relays()
		}
		const most = 8 + 1 // --connections, and one that listens
		n := proxy.Connections()
		fixture.Check(t, n <= most, "%d outboxes have %d connections, want at most %d", len(outboxes), n, most)
	}
	write(all[:outboxes-2])
	process := startRelayWith(t, "OUTBOX_CONFIG="+file.path)
	fixture.Await(t, "the relays are ready", process.ready)
	relay(all[:outboxes-2])

	write(all[1:]) // the first one goes, and two come
	process.reload("the file was read again")
	relay(all[1:])

	proxy.Away(true)
	fixture.Await(t, "the relays notice", func() bool { return !process.ready() })
	proxy.Away(false)
	fixture.Await(t, "the relays are ready", process.ready)
	relay(all[1:])
	process.terminate()
	fixture.Await(t, "no connection is left", func() bool { return proxy.Connections() == 0 })
}
