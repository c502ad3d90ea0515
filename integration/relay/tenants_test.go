package relay_test

import (
	"context"
	"database/sql"
	"fmt"
	"runtime"
	"sync"
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
)

// tenant is one database of many, with its outbox.
type tenant struct {
	pool *sql.DB
	tx   core.Transactor
	ob   *core.Outbox
	stop func() error
}

// connections is the limit of each tenant's pool.
const connections = 2

func newTenant(t *testing.T, db testdb.DB, rec *sqlrecord.Recorder, pub *outboxtest.Publisher) *tenant {
	t.Helper()
	n := &tenant{pool: sql.OpenDB(sqltx.Connector(rec.Connector(db.Connector(t)), db.Dialect))}
	t.Cleanup(func() { _ = n.pool.Close() })
	n.pool.SetMaxOpenConns(connections)
	n.tx = sqltx.NewTransactor(n.pool, db.Dialect)
	repo := fixture.NewRepository(t, n.pool, sqloutbox.Config{Dialect: db.Dialect})
	var err error
	n.ob, err = core.New(core.Config{Repository: repo, Publisher: pub, Relay: relay.Config{Workers: 2}})
	fixture.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- n.ob.Run(ctx) }()
	n.stop = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	t.Cleanup(func() { _ = n.stop() })
	return n
}

func (n *tenant) publish(ctx context.Context, events ...core.Event) error {
	return n.tx.RunInTx(ctx, func(ctx context.Context, tx core.Tx) error {
		_, err := n.ob.Publish(ctx, tx, events...)
		return err
	})
}

// One process relays for many databases, as a service does that has a database for each tenant.
// Databases come and go while it runs, one that breaks stops no other, and each costs little.
func TestOneProcessForManyDatabases(t *testing.T) {
	sqlites, postgreses := 200, 20
	if testing.Short() {
		sqlites, postgreses = 40, 4
	}
	pub, rec := &outboxtest.Publisher{}, &sqlrecord.Recorder{}
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	goroutines := runtime.NumGoroutine()
	var tenants []*tenant
	for i := range sqlites + postgreses {
		db := testdb.SQLite
		if i < postgreses {
			db = testdb.Postgres
		}
		tenants = append(tenants, newTenant(t, db(t), rec, pub))
	}
	want := 0
	publish := func(tenants []*tenant) {
		t.Helper()
		for i, n := range tenants {
			for k := range 3 {
				e := core.Event{Type: "a", AggregateType: "account", AggregateID: fmt.Sprint(i, k%2)}
				fixture.NoError(t, n.publish(t.Context(), e))
				want++
			}
		}
		fixture.Await(t, "every tenant's events arrive", func() bool { return len(pub.Accepted()) >= want })
	}
	publish(tenants)

	runtime.GC()
	runtime.ReadMemStats(&after)
	perTenant := func(total int) int { return total / len(tenants) }
	memory := perTenant(int(after.HeapInuse+after.StackInuse) - int(before.HeapInuse+before.StackInuse))
	running := perTenant(runtime.NumGoroutine() - goroutines)
	t.Logf("%d outboxes in one process: %d bytes and %d goroutines each", len(tenants), memory, running)
	fixture.Check(t, memory <= 512<<10 && running <= 12, "%d bytes and %d goroutines for each outbox", memory, running)

	// Two databases break: the table of one is gone, and the connections of the other.
	_, err := tenants[0].pool.ExecContext(t.Context(), "ALTER TABLE outbox_event RENAME TO elsewhere")
	fixture.NoError(t, err)
	fixture.NoError(t, tenants[len(tenants)-1].pool.Close())
	working := tenants[1 : len(tenants)-1]
	publish(working)

	// A tenth of the databases is removed, and some are added.
	removed := len(working) / 10
	for _, n := range working[:removed] {
		fixture.NoError(t, n.stop())
		// database/sql gives a connection back a moment after the context of its transaction has
		// ended.
		fixture.Await(t, "an outbox that ended holds no connection", func() bool { return n.pool.Stats().InUse == 0 })
		fixture.NoError(t, n.pool.Close())
	}
	working = working[removed:]
	for range removed {
		working = append(working, newTenant(t, testdb.SQLite(t), rec, pub))
	}
	publish(working)

	// The database without its table works again.
	_, err = tenants[0].pool.ExecContext(t.Context(), "ALTER TABLE elsewhere RENAME TO outbox_event")
	fixture.NoError(t, err)
	publish(append(working, tenants[0]))

	// At rest each database is asked a few times in a second at most, also soon after its events.
	const mostStatements = 4
	rec.Start()
	began := time.Now()
	<-time.After(3 * time.Second)
	idle := int(float64(len(rec.Stop())) / time.Since(began).Seconds()) // a busy machine waits longer
	t.Logf("at rest: %d statements in a second for %d outboxes", idle, len(working)+1)
	fixture.Check(t, idle <= mostStatements*(len(working)+1), "%d statements in a second at rest", idle)
	seen := map[string]bool{}
	for _, d := range pub.Accepted() {
		fixture.Check(t, !seen[d.ID], "event %s arrived twice", d.ID)
		seen[d.ID] = true
	}
	fixture.Check(t, len(seen) == want, "%d events arrived of %d", len(seen), want)
	open := 0
	for _, n := range working {
		open += n.pool.Stats().OpenConnections
	}
	t.Logf("%d connections", open)
	fixture.Check(t, open <= connections*len(working), "%d connections for %d outboxes", open, len(working))
}
