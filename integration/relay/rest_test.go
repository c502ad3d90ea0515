package relay_test

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"

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

var restWindow = flag.Duration("rest", 15*time.Second, "how long TestAtRest counts")

// sharing is how many outboxes TestAtRest runs on one pool.
const sharing = 4

// resting are outboxes at rest on one pool.
type resting struct {
	name                  string
	most                  cost
	trips, connections    func() int
	goroutines, megabytes float64
}

// cost is what an outbox takes at rest.
type cost struct{ trips, connections, goroutines, kilobytes float64 }

// An outbox at rest takes little: round trips to the database, connections, goroutines and memory.
func TestAtRest(t *testing.T) {
	var all []*resting
	for _, way := range []struct {
		name string
		db   func(*testing.T) testdb.DB
		open func(*testing.T, *resting, testdb.DB) func(sqloutbox.OpenConfig) *core.Outbox
		most cost
	}{
		{"SQLite", testdb.SQLite, restRecorded, cost{}},
		{"PostgreSQL", testdb.Postgres, restSQL, cost{}},
		{"PostgreSQL, pgxoutbox", testdb.Postgres, restNative, cost{}},
		{"MariaDB", testdb.MariaDB, restSQL, cost{}},
		{"MySQL", testdb.MySQL, restSQL, cost{}},
	} {
		r := &resting{name: way.name, most: way.most}
		open := way.open(t, r, way.db(t))
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		goroutines := runtime.NumGoroutine()
		for i := range sharing {
			ob := open(sqloutbox.OpenConfig{
				Prefix: fmt.Sprintf("o%d_", i), AutoCreate: true, Publisher: &outboxtest.Publisher{},
				Relay: relay.Config{PollInterval: 5 * time.Second}, // as after some seconds without an event
			})
			fixture.RunRelay(t, ob)
		}
		time.Sleep(4 * time.Second)
		runtime.GC()
		runtime.ReadMemStats(&after)
		r.goroutines = float64(runtime.NumGoroutine()-goroutines) / sharing
		r.megabytes = float64(int64(after.HeapInuse+after.StackInuse)-int64(before.HeapInuse+before.StackInuse)) / sharing / 1e3
		all = append(all, r)
	}
	var b strings.Builder
	began := make([]int, len(all))
	for i, r := range all {
		began[i] = r.trips()
	}
	start := time.Now()
	time.Sleep(*restWindow)
	for i, r := range all {
		trips := float64(r.trips()-began[i]) / time.Since(start).Seconds() / sharing
		fmt.Fprintf(&b, "| %s | %.2f | %.2f | %.1f | %.0f kB |\n", r.name, trips, float64(r.connections())/sharing, r.goroutines, r.megabytes)
	}
	t.Log("\n" + b.String())
	buf := make([]byte, 1<<20)
	buf = buf[:runtime.Stack(buf, true)]
	_ = buf
}

func restProxy(t *testing.T, r *resting, db testdb.DB) testdb.DB {
	p, err := wireproxy.New(fixture.ServerOf(t, db))
	fixture.NoError(t, err)
	t.Cleanup(p.Close)
	r.trips, r.connections = p.Trips, p.Connections
	return fixture.Through(t, db, p, time.Minute)
}

func restSQL(t *testing.T, r *resting, db testdb.DB) func(sqloutbox.OpenConfig) *core.Outbox {
	db = restProxy(t, r, db)
	return restOn(t, sql.OpenDB(sqltx.Connector(db.Connector(t), db.Dialect)), db)
}

func restRecorded(t *testing.T, r *resting, db testdb.DB) func(sqloutbox.OpenConfig) *core.Outbox {
	rec := &sqlrecord.Recorder{}
	pool := sql.OpenDB(sqltx.Connector(rec.Connector(db.Connector(t)), db.Dialect))
	n := 0
	rec.Start()
	r.trips = func() int { n += len(rec.Stop()); rec.Start(); return n }
	r.connections = func() int { return pool.Stats().OpenConnections }
	return restOn(t, pool, db)
}

func restOn(t *testing.T, pool *sql.DB, db testdb.DB) func(sqloutbox.OpenConfig) *core.Outbox {
	t.Cleanup(func() { _ = pool.Close() })
	return func(cfg sqloutbox.OpenConfig) *core.Outbox {
		repo := fixture.NewRepository(t, pool, sqloutbox.Config{Dialect: db.Dialect, Prefix: cfg.Prefix})
		ob, err := core.New(core.Config{Repository: repo, Publisher: cfg.Publisher, Relay: cfg.Relay})
		fixture.NoError(t, err)
		return ob
	}
}

func restNative(t *testing.T, r *resting, db testdb.DB) func(sqloutbox.OpenConfig) *core.Outbox {
	db = restProxy(t, r, db)
	var pool *pgxoutbox.Pool
	return func(cfg sqloutbox.OpenConfig) *core.Outbox {
		var ob *core.Outbox
		var err error
		if pool == nil {
			pool, ob, err = pgxoutbox.Open(context.Background(), db.DSN, cfg)
			t.Cleanup(func() { pool.Close() })
		} else {
			ob, err = pgxoutbox.New(pool, cfg)
		}
		fixture.NoError(t, err)
		return ob
	}
}
