package walrelay_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
	"github.com/ormoutbox/ormoutbox/pgxoutbox/walrelay"
)

// world is a PostgreSQL with a service that inserts events for the log, and a destination.
type world struct {
	*testing.T
	db      testdb.DB
	service *fixture.Process
	pool    *pgxpool.Pool
	pub     *outboxtest.Publisher
	slot    string
	mu      sync.Mutex // protects the numbers that a test counts
}

var slots atomic.Int64

func newWorld(t *testing.T, db testdb.DB) *world {
	t.Helper()
	w := &world{T: t, db: db, pub: &outboxtest.Publisher{}}
	// Slots have one name for the whole server.
	w.slot = fmt.Sprintf("walrelay_%d_%d", time.Now().UnixNano(), slots.Add(1))
	w.service = fixture.NewProcess(t, db, core.Config{RelayedByLog: true, Relay: relay.Config{DisableJanitor: true}})
	w.pool = w.open()
	return w
}

// newPrivateWorld is newWorld on a server that only this test uses.
func newPrivateWorld(t *testing.T) (*world, *fixture.PrivateServer) {
	t.Helper()
	server, db := fixture.StartPrivateDatabase(t, "postgres")
	return newWorld(t, db), server
}

// crash kills the server, and waits until it answers again.
func (w *world) crash(server *fixture.PrivateServer) {
	w.Helper()
	server.Kill(w.T)
	w.up(server)
}

// up starts the server, and waits until it answers.
func (w *world) up(server *fixture.PrivateServer) {
	w.Helper()
	server.Up(w.T)
	fixture.Await(w, "the server answers", func() bool { return w.service.Pool.PingContext(w.Context()) == nil })
}

// eachWorld runs fn on each PostgreSQL, with a slot that is made already.
func eachWorld(t *testing.T, fn func(t *testing.T, w *world)) {
	t.Helper()
	testdb.EachPostgres(t, func(t *testing.T, db testdb.DB) {
		w := newWorld(t, db)
		w.setUp()
		fn(t, w)
	})
}

func (w *world) open() *pgxpool.Pool {
	w.Helper()
	cfg, err := pgxpool.ParseConfig(w.db.DSN)
	fixture.NoError(w.T, err)
	cfg.MaxConns = 8
	pool, err := pgxpool.NewWithConfig(w.Context(), cfg)
	fixture.NoError(w.T, err)
	w.Cleanup(pool.Close)
	return pool
}

// config returns the configuration of a relay, with short times.
func (w *world) config() walrelay.Config {
	return walrelay.Config{
		Pool: w.pool, Slot: w.slot, Create: true, ConfirmEvery: 20 * time.Millisecond,
		Outbox: core.Config{
			Publisher: w.pub, Relay: relay.Config{
				DisableJanitor: true, PollInterval: 50 * time.Millisecond,
				MaxPollInterval: 100 * time.Millisecond,
				Retry:           relay.RetryPolicy{BaseDelay: time.Millisecond, MaxDelay: 10 * time.Millisecond},
				Breaker: relay.BreakerPolicy{
					ProbeInterval: 10 * time.Millisecond, MaxProbeInterval: 20 * time.Millisecond,
				},
			},
		},
	}
}

func (w *world) relay(cfg walrelay.Config) *walrelay.Relay {
	w.Helper()
	r, err := walrelay.New(cfg)
	fixture.NoError(w.T, err)
	return r
}

// run runs a relay until stop is called or the test ends.
func (w *world) run(cfg walrelay.Config) (stop func()) {
	w.Helper()
	return fixture.RunRelay(w, w.relay(cfg))
}

// setUp makes the slot, so that events that are inserted from here on come from the log.
func (w *world) setUp() {
	w.Helper()
	fixture.NoError(w.T, w.relay(w.config()).Setup(w.Context()))
}

// await waits until the destination has n copies.
func (w *world) await(n int) {
	w.Helper()
	fixture.Await(w, fmt.Sprintf("%d copies", n), func() bool { return len(w.pub.Accepted()) >= n })
}

// event returns the n-th event of a key. If key is empty, the event has no key.
func event(key string, n int) core.Event {
	return core.Event{
		Type: "counted", Topic: "counts", Key: key, Payload: []byte(fmt.Sprint(n)),
		Headers: map[string]string{core.HeaderCausationID: "cause of " + key},
	}
}

// publish commits n events of a key, each in a transaction of its own.
func (w *world) publish(key string, from, to int) (ids []string) {
	w.Helper()
	for i := from; i <= to; i++ {
		ids = append(ids, w.service.Publish(event(key, i))...)
	}
	return ids
}

// copies returns the payloads of a key that the destination has, in order.
func (w *world) copies(key string) (all []string) {
	for _, d := range w.pub.Accepted() {
		if d.Key == key {
			all = append(all, string(d.Payload))
		}
	}
	return all
}

// wantRepeats requires that the copies of a key are 1 to n in order, where parts may be repeated.
// After each copy comes the next event, or one that came before.
func (w *world) wantRepeats(key string, n int) {
	w.Helper()
	last, most := 0, 0
	for _, text := range w.copies(key) {
		var i int
		_, _ = fmt.Sscan(text, &i)
		if i > last+1 || i > most+1 {
			w.Errorf("key %q: %d after %d: %v", key, i, last, w.copies(key))
		}
		last, most = i, max(most, i)
	}
	if most != n || last != n {
		w.Errorf("key %q ends with %d, and has events up to %d, want %d: %v", key, last, most, n, w.copies(key))
	}
}

var errRefused = core.Permanent(errors.New("refused"))

// refuse makes the destination refuse the n-th event of a key.
func (w *world) refuse(key string, n int) {
	w.pub.FailFor(func(d core.Delivery) error {
		if d.Key == key && string(d.Payload) == fmt.Sprint(n) {
			return errRefused
		}
		return nil
	})
}

// last returns the payload of the last copy of a key.
func (w *world) last(key string) string {
	all := w.copies(key)
	if len(all) == 0 {
		return ""
	}
	return all[len(all)-1]
}

// awaitLast waits until the last copy of a key is its n-th event.
func (w *world) awaitLast(key string, n int) {
	w.Helper()
	fixture.Await(w, fmt.Sprintf("key %s is at event %d", key, n), func() bool { return w.last(key) == fmt.Sprint(n) })
}

// redrive has all dead events tried again.
func (w *world) redrive(ctx context.Context, o *core.Outbox) error {
	dead, err := o.ListDead(ctx, core.DeadQuery{})
	for _, d := range dead {
		_, failed := o.Redrive(ctx, core.AdminRequest{IDs: []core.RowID{d.ID}, Actor: "ann", Reason: "repaired"})
		err = errors.Join(err, failed)
	}
	return err
}

// lsn returns the position that a query returns as a text.
func (w *world) lsn(query string, args ...any) (at pglogrepl.LSN) {
	w.Helper()
	var text string
	fixture.NoError(w.T, w.service.Pool.QueryRowContext(w.Context(), query, args...).Scan(&text))
	at, err := pglogrepl.ParseLSN(text)
	fixture.NoError(w.T, err)
	return at
}

// confirmed returns the position that the relay has confirmed to the slot.
func (w *world) confirmed() pglogrepl.LSN {
	w.Helper()
	return w.lsn("SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = $1", w.slot)
}
