package relay_test

import (
	"context"
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/sqlrecord"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// A relay at rest sends statements, however seldom it polls: it keeps a database awake that sleeps
// when nobody asks it anything. A process without a relay sends none.
func TestOnlyRelaysKeepDatabaseAwake(t *testing.T) {
	t.Parallel()
	db := testdb.Postgres(t)
	var quiet, awake sqlrecord.Recorder
	db.Wrap = quiet.Connector
	producer := fixture.NewProcess(t, db, core.Config{})
	producer.Publish(core.Event{Type: "t"})
	fixture.NoError(t, producer.Outbox.Drain(t.Context()))

	db.Wrap = awake.Connector
	relaying := fixture.JoinProcess(t, db, &outboxtest.Publisher{}, core.Config{
		Wake: core.WakePolicy{Disable: true}, Relay: relay.Config{PollInterval: time.Hour, MaxPollInterval: time.Hour},
	})
	quiet.Start()
	awake.Start()
	relaying.Run()
	pauses, beats := 0, 0
	fixture.Await(t, "the relay reads pauses and writes heartbeats", func() bool {
		calls := awake.Stop()
		awake.Start()
		for _, c := range calls {
			if strings.Contains(c.Query, "outbox_pause") {
				pauses++
			}
			if strings.Contains(c.Query, "outbox_relay") {
				beats++
			}
		}
		return pauses >= 4 && beats >= 3
	})
	if calls := quiet.Stop(); len(calls) > 0 {
		t.Errorf("a process without a relay sends %v", calls)
	}
}

// A database that goes to sleep closes its connections. The next transaction wakes it up, at the
// latest when it is tried again, and calls of Drain without Run publish what was committed.
func TestDrainFromSleepingDatabase(t *testing.T) {
	t.Parallel()
	db := testdb.Postgres(t)
	p := fixture.NewProcess(t, db, core.Config{})
	admin, err := sql.Open("pgx", testdb.Server(t, "OUTBOX_TEST_POSTGRES"))
	fixture.NoError(t, err)
	t.Cleanup(func() { _ = admin.Close() })
	name := fixture.Query(t, p.Pool, "SELECT current_database()",
		func(r *sql.Rows) (name string, err error) { return name, r.Scan(&name) })[0]
	sleep := func() {
		fixture.Await(t, "the database sleeps", func() bool {
			return fixture.Count(t, admin, "SELECT COUNT(pg_terminate_backend(pid)) FROM pg_stat_activity "+
				"WHERE datname = '"+name+"'") == 0
		})
	}
	var want []string
	for range 3 {
		sleep()
		fixture.Await(t, "the transaction commits", func() bool {
			var ids []string
			err := p.Tx.RunInTx(t.Context(), func(ctx context.Context, tx core.Tx) (err error) {
				ids, err = p.Outbox.Publish(ctx, tx, core.Event{Type: "t", Key: "k"})
				return err
			})
			if err != nil {
				t.Logf("the service's own transaction: %v", err)
				return false
			}
			want = append(want, ids...)
			return true
		})
		sleep()
		fixture.Await(t, "the events leave", func() bool {
			if err := p.Outbox.Drain(t.Context()); err != nil {
				t.Logf("Drain: %v", err)
			}
			return len(p.Accepted()) >= len(want)
		})
	}
	p.OnceEach(want)
}
