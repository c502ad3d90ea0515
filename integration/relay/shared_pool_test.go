package relay_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// Many outboxes share a small pool. All begin at once, and one has far more events than the others:
// each gets its turn, and at rest they need no more than a few connections. The log is in
// docs/scaling.md.
func TestManyOutboxesOnOnePool(t *testing.T) {
	const connections = 10
	outboxes, backlog, few := 200, 20_000, 5
	if testing.Short() {
		outboxes, backlog = 20, 2_000
	}
	db := testdb.Postgres(t)
	own, pool := fixture.TrackedPool(t, db), fixture.TrackedPool(t, db) // of the services, and of the relays
	pool.SetMaxOpenConns(connections)
	pool.SetMaxIdleConns(connections)
	pool.SetConnMaxIdleTime(time.Second)
	tx := sqltx.NewTransactor(own, db.Dialect)
	var large, largeThen atomic.Int64
	var open atomic.Int64
	open.Store(int64(outboxes - 1)) // that have not published all their events
	var relays []*core.Outbox
	for i := range outboxes {
		tables := sqloutbox.Config{Dialect: db.Dialect, Prefix: fmt.Sprintf("o%d_", i)}
		service, err := core.New(core.Config{Repository: fixture.NewRepository(t, own, tables)})
		fixture.NoError(t, err)
		events := make([]core.Event, few)
		if i == 0 {
			events = make([]core.Event, backlog)
		}
		for k := range events {
			events[k] = core.Event{Type: "a", Topic: "a", Key: fmt.Sprint(k % 100), Payload: []byte("{}")}
		}
		for some := range slices.Chunk(events, 500) {
			fixture.NoError(t, tx.RunInTx(t.Context(), func(ctx context.Context, tx core.Tx) error {
				_, err := service.Publish(ctx, tx, some...)
				return err
			}))
		}
		var published atomic.Int64
		publisher := core.PublisherFunc(func(context.Context, core.Delivery) error {
			switch n := published.Add(1); {
			case i == 0:
				large.Store(n)
			case n == int64(few) && open.Add(-1) == 0:
				largeThen.Store(large.Load())
			}
			return nil
		})
		repo, err := sqloutbox.New(pool, tables)
		fixture.NoError(t, err)
		ob, err := core.New(core.Config{Repository: repo, Publisher: publisher, Relay: relay.Config{}})
		fixture.NoError(t, err)
		relays = append(relays, ob)
	}
	began := time.Now()
	for _, ob := range relays {
		fixture.RunRelay(t, ob)
	}
	fixture.AwaitIn(t, time.Minute, "each outbox has its turn", func() bool { return open.Load() == 0 })
	all := time.Since(began)
	fixture.AwaitIn(t, time.Minute, "the largest is done too", func() bool { return large.Load() == int64(backlog) })
	largest := time.Since(began)
	t.Logf("%d outboxes that begin at once on %d connections: all but one have published after %.1f s, that one %d "+
		"of %d events by then, and all after %.1f s", outboxes, connections, all.Seconds(), largeThen.Load(), backlog,
		largest.Seconds())
	fixture.Check(t, largeThen.Load() < int64(backlog), "the others waited for the largest outbox")

	<-time.After(quietTime)
	before, at := pool.Stats(), time.Now()
	var used, looks int
	for time.Since(at) < 10*time.Second {
		used += pool.Stats().InUse
		looks++
		<-time.After(5 * time.Millisecond)
	}
	after := pool.Stats()
	t.Logf("at rest: %d connections, of which %.1f are in use; %d waits for one in 10 s, %s in all",
		after.OpenConnections, float64(used)/float64(looks), after.WaitCount-before.WaitCount,
		(after.WaitDuration - before.WaitDuration).Round(time.Millisecond))
	fixture.Check(t, used < looks*connections/2, "idle outboxes hold %.1f connections", float64(used)/float64(looks))
}
