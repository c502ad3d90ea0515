package walrelay_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/integration/internal/crash"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/longtest"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

const keysPerCell = 6

// Processes that read the log are ended with SIGKILL exactly between two steps, again and again,
// while a service commits and rolls back. No committed event is lost, no other event is published,
// first copies stay in the order of their keys, and the last copy of each key is that of its last
// event.
func TestKilled(t *testing.T) {
	longtest.Mark(t)
	t.Parallel()
	kills := 8
	if testing.Short() {
		kills = 1
	}
	testdb.EachPostgres(t, func(t *testing.T, db testdb.DB) {
		slots := make(chan struct{}, 3)
		for _, p := range points {
			t.Run(string(p), func(t *testing.T) {
				t.Parallel()
				slots <- struct{}{}
				defer func() { <-slots }()
				newCell(t, db.Another(t), p).run(kills)
			})
		}
	})
}

// cell is one database in which relays are ended at one point.
type cell struct {
	*world
	point  point
	broker *refusals
	ledger *crash.Ledger
	ctx    context.Context
}

func newCell(t *testing.T, db testdb.DB, p point) *cell {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	t.Cleanup(cancel)
	c := &cell{world: newWorld(t, db), point: p, broker: &refusals{some: p.spills()}, ctx: ctx}
	fixture.NoError(t, crash.CreateTruth(ctx, c.service.Pool, keysPerCell))
	c.setUp()
	var err error
	c.ledger, err = crash.NewLedger(c.broker.judge)
	fixture.NoError(t, err)
	t.Cleanup(c.ledger.Close)
	return c
}

func (c *cell) child(n int, p point, after int64) *started {
	c.Helper()
	s, err := (&child{
		DSN: c.db.DSN, Slot: c.slot, Ledger: c.ledger.Addr(), Name: fmt.Sprint("child ", n), Point: p, After: after,
	}).start()
	fixture.NoError(c.T, err)
	return s
}

func (c *cell) run(kills int) {
	c.Helper()
	writing, quiet := context.WithCancel(c.ctx)
	defer quiet()
	var wg sync.WaitGroup
	for i := range 2 {
		w := &crash.Writer{
			Begin: crash.BeginSQL(c.service.Pool, core.Postgres), Outbox: c.service.Outbox, Topic: "crash",
			Keys: keysPerCell, Pause: 4 * time.Millisecond,
		}
		wg.Go(func() {
			if err := w.Write(writing, rand.New(rand.NewPCG(rand.Uint64(), uint64(i))), 0); err != nil {
				c.Error(err)
			}
		})
	}
	for n := range kills {
		after := 1 + rand.Int64N(25)
		switch c.point {
		case repairBegins, repairDropped, repairCreated, repairEnds:
			after = 1
		case beforeConfirm, afterConfirm, beforeSpill, afterSpill:
			after = 1 + rand.Int64N(6)
		default:
		}
		if c.point.repairs() {
			c.loseSlot(n)
		}
		fixture.NoError(c.T, c.child(n, c.point, after).killed(c.ctx))
	}
	last := c.child(kills, never, 0)
	time.Sleep(20 * time.Millisecond) // the writers go on for a while after the last relay has started
	quiet()
	wg.Wait()
	c.broker.healed.Store(true)
	fixture.Await(c, "commits that their client has given up have ended", func() bool {
		over := false
		err := c.service.Pool.QueryRowContext(c.ctx, "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE datname = "+
			"current_database() AND backend_xid IS NOT NULL AND pid <> pg_backend_pid())").Scan(&over)
		return err == nil && over
	})
	truth, err := crash.ReadTruth(c.ctx, c.service.Pool)
	fixture.NoError(c.T, err)
	end := c.lsn("SELECT pg_current_wal_lsn()::text") // before this position the last relay may still repeat events
	relay := c.relay(c.config())
	fixture.AwaitIn(c, 2*time.Minute, "everything is published, and repeats are over", func() bool {
		fixture.NoError(c.T, c.redrive(c.ctx, relay.Outbox()))
		seen := map[string]bool{}
		for _, m := range c.ledger.Records() {
			seen[m.EventID] = true
		}
		for id := range truth.Events {
			if !seen[id] {
				return false
			}
		}
		st, err := relay.Status(c.ctx)
		if err != nil || st.Repairing || st.Confirmed < end {
			return false
		}
		s := c.service.Statuses()
		return s[fixture.StatusNew]+s[fixture.StatusRetry]+s[fixture.StatusDead] == 0
	})
	fixture.NoError(c.T, last.stop())
	c.judge(truth, kills)
}

// loseSlot lets the relay publish something, and then drops the slot.
func (c *cell) loseSlot(n int) {
	c.Helper()
	before := len(c.ledger.Records())
	s := c.child(1000+n, never, 0)
	fixture.Await(c, "events are published", func() bool { return len(c.ledger.Records()) > before+5 })
	fixture.NoError(c.T, s.stop())
	c.dropSlot()
}

// judge compares what the broker has with what was committed.
func (c *cell) judge(truth crash.Truth, kills int) {
	c.Helper()
	records := c.ledger.Records()
	v := crash.Judge(string(c.point), records, truth)
	v.Kills = kills
	if v.Lost+v.Ghosts+v.Violations > 0 {
		c.Errorf("%d lost, %d ghosts, %d out of order: %v", v.Lost, v.Ghosts, v.Violations, v.Err())
	}
	newest, last := map[string]int64{}, map[string]int64{}
	for _, f := range truth.Events {
		newest[f.Key] = max(newest[f.Key], f.N)
	}
	for _, m := range records {
		if f := truth.Events[m.EventID]; f.Key != "" {
			last[f.Key] = f.N
		}
	}
	for key, n := range last {
		if n != newest[key] {
			c.Errorf("the last copy of key %s is that of event %d of %d", key, n, newest[key])
		}
	}
	c.Log(crash.Counts(v))
	c.Logf("%s: %d kills, %d events, %d repeated", c.point, kills, v.Committed, v.Duplicates)
}
