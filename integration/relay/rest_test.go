package relay_test

import (
	"bytes"
	"context"
	"database/sql"
	"flag"
	"fmt"
	"runtime"
	"runtime/pprof"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/sqlrecord"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
	"github.com/ormoutbox/ormoutbox/integration/internal/wireproxy"
	"github.com/ormoutbox/ormoutbox/pgxoutbox"
)

var restTime = flag.Duration("rest.time", 20*time.Second, "how long TestAtRest counts what outboxes at rest ask")

const (
	// sharing is how many outboxes of TestAtRest share a pool.
	sharing = 5
	// startTime is how long an outbox needs until it rests: its first workers end after two looks at its
	// leases. MariaDB and MySQL are asked for wake-ups less and less often, until quietTime.
	startTime = 4 * time.Second
	quietTime = 24 * time.Second
	mostBytes = 1_000_000 // of memory, for each outbox
)

// restWay is a way to use a database in TestAtRest, with the most that an outbox may take at rest.
type restWay struct {
	name        string
	db          func(*testing.T) testdb.DB
	open        func(*testing.T, *resting, testdb.DB)
	trips       float64 // to the database, in a second; for SQLite statements
	connections int     // of sharing outboxes together
	goroutines  int
}

var restWays = []restWay{
	{"MariaDB", testdb.MariaDB, openSQL, 6, 2, 12},
	{"MySQL", testdb.MySQL, openSQL, 6, 2, 12},
	{"PostgreSQL", testdb.Postgres, openSQL, 3.5, 2, 9},
	{"PostgreSQL, pgxoutbox", testdb.Postgres, openNative, 2, 9, 12},
	{"SQLite", testdb.SQLite, openRecorded, 40, 7, 12},
}

// resting are outboxes at rest on one pool.
type resting struct {
	restWay
	outbox           func(prefix string) *core.Outbox // makes another one
	asked, connected func() int                       // round trips so far, and connections
	running, memory  int                              // goroutines and bytes of each outbox
	before           int                              // round trips before the measurement
}

// An outbox without events takes little of the database and of its process. The log is the table of
// docs/scaling.md.
func TestAtRest(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes a minute")
	}
	var all []*resting
	for _, way := range restWays {
		r := &resting{restWay: way}
		way.open(t, r, way.db(t))
		r.start(t)
		all = append(all, r)
	}
	<-time.After(quietTime) // nothing shows that they rest
	for _, r := range all {
		r.before = r.asked()
	}
	began := time.Now()
	<-time.After(*restTime)
	seconds := time.Since(began).Seconds() // a busy machine waits longer
	for _, r := range all {
		trips := float64(r.asked()-r.before) / seconds / sharing
		fixture.Await(t, r.name+": few connections", func() bool { return r.connected() <= r.connections })
		connections := r.connected()
		t.Logf("| %s | %.1f | %d | %d | %d kB |", r.name, trips, connections, r.running, r.memory/1000)
		fixture.Check(
			t,
			trips <= r.trips,
			"%s: %.1f round trips in a second, want at most %.1f",
			r.name,
			trips,
			r.trips,
		)
		fixture.Check(
			t,
			r.running <= r.goroutines && r.memory <= mostBytes,
			"%s: %d goroutines and %d bytes, want at most %d and %d",
			r.name,
			r.running,
			r.memory,
			r.goroutines,
			mostBytes,
		)
	}
}

// start runs the outboxes and measures what they take of the process. The first one is not counted:
// with it comes what they share.
func (r *resting) start(t *testing.T) {
	memory, goroutines := 0, 0
	for i := range sharing {
		fixture.RunRelay(t, r.outbox(fmt.Sprintf("o%d_", i)))
		if i == 0 {
			<-time.After(startTime)
			memory, goroutines = memoryInUse(), goroutinesOfOutboxes()
		}
	}
	<-time.After(startTime)
	const counted = sharing - 1
	r.running = (goroutinesOfOutboxes() - goroutines + counted - 1) / counted
	r.memory = (memoryInUse() - memory) / counted
}

func memoryInUse() int {
	runtime.GC()
	runtime.GC() // stacks shrink
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapInuse + m.StackInuse)
}

// goroutinesOfOutboxes counts goroutines, except those of the proxy.
func goroutinesOfOutboxes() (n int) {
	var all bytes.Buffer
	_ = pprof.Lookup("goroutine").WriteTo(&all, 2)
	for one := range bytes.SplitSeq(all.Bytes(), []byte("\n\n")) {
		if !bytes.Contains(one, []byte("wireproxy")) {
			n++
		}
	}
	return n
}

// restConfig is how an outbox is configured. The pause between polls is the pause at rest from the
// beginning.
func restConfig(prefix string) sqloutbox.OpenConfig {
	return sqloutbox.OpenConfig{
		Prefix: prefix, AutoCreate: true, Publisher: &outboxtest.Publisher{},
		Relay: relay.Config{PollInterval: 5 * time.Second},
	}
}

// proxied returns the database behind a proxy that counts.
func (r *resting) proxied(t *testing.T, db testdb.DB) testdb.DB {
	proxy, err := wireproxy.New(fixture.ServerOf(t, db))
	fixture.NoError(t, err)
	t.Cleanup(proxy.Close)
	r.asked, r.connected = proxy.Trips, proxy.Connections
	return fixture.Through(t, db, proxy, time.Minute)
}

func openSQL(t *testing.T, r *resting, db testdb.DB) {
	db = r.proxied(t, db)
	r.on(t, sql.OpenDB(sqltx.Connector(db.Connector(t), db.Dialect)), db)
}

func openRecorded(t *testing.T, r *resting, db testdb.DB) {
	rec, asked := &sqlrecord.Recorder{}, 0
	pool := sql.OpenDB(sqltx.Connector(rec.Connector(db.Connector(t)), db.Dialect))
	rec.Start()
	r.asked = func() int {
		asked += len(rec.Stop())
		rec.Start()
		return asked
	}
	r.connected = func() int { return pool.Stats().OpenConnections }
	r.on(t, pool, db)
}

func (r *resting) on(t *testing.T, pool *sql.DB, db testdb.DB) {
	t.Cleanup(func() { _ = pool.Close() })
	r.outbox = func(prefix string) *core.Outbox {
		cfg := restConfig(prefix)
		repo := fixture.NewRepository(t, pool, sqloutbox.Config{Dialect: db.Dialect, Prefix: prefix})
		ob, err := core.New(core.Config{Repository: repo, Publisher: cfg.Publisher, Relay: cfg.Relay})
		fixture.NoError(t, err)
		return ob
	}
}

func openNative(t *testing.T, r *resting, db testdb.DB) {
	db = r.proxied(t, db)
	var pool *pgxoutbox.Pool
	r.outbox = func(prefix string) (ob *core.Outbox) {
		var err error
		if pool == nil {
			pool, ob, err = pgxoutbox.Open(context.Background(), db.DSN, restConfig(prefix))
			t.Cleanup(func() { pool.Close() })
		} else {
			ob, err = pgxoutbox.New(pool, restConfig(prefix))
		}
		fixture.NoError(t, err)
		return ob
	}
}
