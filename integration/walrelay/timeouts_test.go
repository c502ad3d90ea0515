package walrelay_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
	"github.com/ormoutbox/ormoutbox/pgxoutbox/walrelay"
)

// backlog publishes n events before there is a slot, and returns the configuration of a relay whose
// repair takes longer than its window.
func (w *world) backlog(n int, settings string) walrelay.Config {
	w.Helper()
	for range n / 500 {
		var events []core.Event
		for range 500 {
			events = append(events, event("", 1))
		}
		w.service.Publish(events...)
	}
	w.pub.FailFor(func(core.Delivery) error {
		time.Sleep(time.Millisecond) // a destination is slower than the table
		return nil
	})
	cfg := w.quick()
	cfg.Window = 100
	pool, err := pgxpool.New(w.Context(), w.db.DSN+settings)
	fixture.NoError(w.T, err)
	w.Cleanup(pool.Close)
	cfg.Pool = pool
	return cfg
}

// awaitRepaired waits until the relay has read everything from the table.
func (w *world) awaitRepaired(r *walrelay.Relay) {
	w.Helper()
	fixture.AwaitIn(w, 2*repairLimit, "the repair has ended", func() bool {
		s, err := r.Status(w.Context())
		return err == nil && s.Leading && !s.Repairing
	})
}

// The timeouts that administrators give to roles are for statements that should be short. A repair
// is as long as its destination is slow.
func TestRepairUnderTimeouts(t *testing.T) {
	t.Parallel()
	testdb.EachPostgres(t, func(t *testing.T, db testdb.DB) {
		w := newWorld(t, db)
		const n = 2000
		relay := w.relay(w.backlog(n,
			"&statement_timeout=150&lock_timeout=50&idle_in_transaction_session_timeout=150"))
		fixture.RunRelay(w, relay)
		w.awaitRepaired(relay)
		if got := len(w.pub.Accepted()); got != n {
			t.Errorf("%d copies of %d events", got, n)
		}
	})
}

// A repair that is interrupted goes on where it was.
func TestRepairGoesOn(t *testing.T) {
	t.Parallel()
	testdb.EachPostgres(t, func(t *testing.T, db testdb.DB) {
		w := newWorld(t, db)
		const n, piece = 4000, 1000
		relay := w.relay(w.backlog(n, ""))
		fixture.RunRelay(w, relay)
		w.await(n - piece - piece/2)
		fixture.Await(t, "the repair is interrupted", func() bool {
			return fixture.Count(t, w.service.Pool, "SELECT count(*) FROM (SELECT pg_terminate_backend(pid) "+
				"FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'FETCH % FROM repair') x") > 0
		})
		w.awaitRepaired(relay)
		ids := map[string]bool{}
		for _, d := range w.pub.Accepted() {
			ids[d.ID] = true
		}
		if got := len(w.pub.Accepted()); len(ids) != n || got > n+2*piece {
			t.Errorf("%d copies of %d events, want %d and few copies", got, len(ids), n)
		}
	})
}

// With synchronous replication a commit is in the log before it is known to survive a failover. It
// is published when its transaction has ended.
func TestCommitThatWaitsForAStandby(t *testing.T) {
	t.Parallel()
	w, _ := newPrivateWorld(t)
	w.setUp()
	pool, err := pgxpool.New(t.Context(), w.db.DSN+"&synchronous_commit=local") // its own commits wait for nobody
	fixture.NoError(t, err)
	t.Cleanup(pool.Close)
	fixture.MustExec(t, w.service.Pool, "ALTER SYSTEM SET synchronous_standby_names = '*'")
	reload := func(want string) {
		fixture.MustExec(t, w.service.Pool, "SELECT pg_reload_conf()")
		fixture.Await(t, "the server has read its settings", func() bool {
			return fixture.Count(t, w.service.Pool, "SELECT count(*) FROM pg_settings WHERE name = "+
				"'synchronous_standby_names' AND setting = '"+want+"'") == 1
		})
	}
	reload("*")
	cfg := w.quick()
	cfg.Pool = pool
	relay := w.relay(cfg)
	fixture.RunRelay(w, relay)
	fixture.Await(t, "the relay has the slot", func() bool {
		s, err := relay.Status(t.Context())
		return err == nil && s.Leading
	})
	committed := make(chan []string, 1)
	go func() { committed <- w.service.Publish(event("", 1)) }()
	fixture.Await(t, "COMMIT waits for a standby", func() bool {
		return fixture.Count(t, w.service.Pool, "SELECT count(*) FROM pg_stat_activity "+
			"WHERE wait_event = 'SyncRep'") == 1
	})
	fixture.Await(t, "the relay has the transaction, and asks whether it has ended", func() bool {
		return fixture.Count(t, w.service.Pool, "SELECT count(*) FROM pg_stat_activity WHERE query LIKE "+
			"'SELECT pg_snapshot_xmin(s)%'") > 0
	})
	if n := len(w.pub.Accepted()); n > 0 {
		t.Errorf("%d events are published, and their transaction has not ended", n)
	}
	fixture.MustExec(t, w.service.Pool, "ALTER SYSTEM RESET synchronous_standby_names")
	reload("")
	<-committed
	w.await(1)
}
