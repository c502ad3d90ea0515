package crash_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/integration/internal/crash"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// Three processes relay. An event that its destination refuses permanently becomes dead. Only the
// events behind it in its key wait. The dead event is listed, and redriving or discarding it ends
// the wait.
func TestZombieDeadEventBlocksItsKey(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		prepareCrashDB(t, db)
		var mu sync.Mutex
		poison := map[string]bool{}
		ledger, err := crash.NewLedger(func(m crash.Message) crash.Answer {
			mu.Lock()
			defer mu.Unlock()
			if poison[m.EventID] {
				return crash.Permanent
			}
			return crash.Accept
		})
		fixture.NoError(t, err)
		t.Cleanup(ledger.Close)
		h := &herd{db: db, ledger: ledger}
		pool := db.Open(t)
		repo, err := sqloutbox.New(pool, sqloutbox.Config{Dialect: db.Dialect})
		fixture.NoError(t, err)
		ob, err := core.New(core.Config{Repository: repo})
		fixture.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()

		write := func(key string) (ids []string) {
			for i := range 5 {
				e := core.Event{ID: core.NewEventID(), Type: "written", Topic: "dead", Key: key, Payload: []byte("{}")}
				if i == 1 && key != "well" {
					mu.Lock()
					poison[e.ID] = true
					mu.Unlock()
				}
				tx, err := sqltx.Begin(ctx, pool, nil, db.Dialect)
				fixture.NoError(t, err)
				if _, err := ob.Publish(ctx, tx, e); err != nil {
					t.Fatal(err)
				}
				fixture.NoError(t, tx.Commit())
				ids = append(ids, e.ID)
			}
			return ids
		}
		redriven, discarded := write("redriven"), write("discarded")
		for slot := range h.processes {
			p, err := crash.Start(crash.Spec{
				Name: fmt.Sprintf("relay-%d", slot), Dialect: db.Dialect, DSN: db.DSN, Ledger: ledger.Addr(),
				Topic: "dead", Relay: true,
			})
			fixture.NoError(t, err)
			h.processes[slot] = p
			t.Cleanup(func() { _ = p.Kill() })
		}
		has := func(ids ...string) func([]crash.Message, func(string, string) int) bool {
			return func(records []crash.Message, _ func(string, string) int) bool {
				for _, id := range ids {
					if !slices.ContainsFunc(records, func(m crash.Message) bool { return m.EventID == id }) {
						return false
					}
				}
				return true
			}
		}
		h.await(ctx, t, "the first of each key is published", has(redriven[0], discarded[0]))
		fixture.Eventually(ctx, t, "two events are dead", func() bool { return backlog(ctx, t, ob).Dead == 2 })
		well := write("well") // once these are published, the relays have looked at the blocked keys again
		h.await(ctx, t, "other keys go on", has(well...))
		if b := backlog(ctx, t, ob); b.BlockedKeys != 2 {
			t.Errorf("backlog %+v, want 2 blocked keys", b)
		}
		fixture.Eventually(ctx, t, "only what is behind the dead events is open",
			func() bool { return backlog(ctx, t, ob).Pending == 6 })
		for _, m := range ledger.Records() {
			fixture.Must(t, !slices.Contains(append(redriven[1:], discarded[1:]...), m.EventID),
				"%+v passed a dead event", m)
		}
		dead, err := ob.ListDead(ctx, core.DeadQuery{Topic: "dead"})
		fixture.Must(t, err == nil && len(dead) == 2, "dead events: %+v, %v", dead, err)

		mu.Lock()
		clear(poison)
		mu.Unlock()
		for _, d := range dead {
			act := ob.Redrive
			if d.Event.ID == discarded[1] {
				act = ob.Discard
			} else if d.Event.ID != redriven[1] {
				t.Fatalf("%+v is dead", d)
			}
			n, err := act(ctx, core.AdminRequest{IDs: []core.RowID{d.ID}, Actor: "test", Reason: "proof"})
			fixture.Must(t, err == nil && n == 1, "changed %d, %v", n, err)
		}
		if err := untilEmpty(ctx, ob); err != nil {
			t.Fatalf("%v\n%s", err, openRows(pool))
		}
		h.await(ctx, t, "the events behind are published",
			has(append(append([]string{}, redriven...), discarded[2:]...)...))
		for _, p := range h.processes {
			if err := p.Stop(); err != nil {
				t.Error(err)
			}
		}
		var order []string // of first copies: a lease may run out on a slow machine
		for _, m := range ledger.Records() {
			if m.Key != "well" && !slices.Contains(order, m.EventID) {
				order = append(order, m.EventID)
			}
		}
		for _, want := range [][]string{redriven, append(discarded[:1:1], discarded[2:]...)} {
			got := slices.DeleteFunc(slices.Clone(order), func(id string) bool { return !slices.Contains(want, id) })
			fixture.Check(t, slices.Equal(got, want), "published %v, want %v", got, want)
		}
		fixture.Check(t, !slices.Contains(order, discarded[1]), "a discarded event was published")
	})
}

func backlog(ctx context.Context, t *testing.T, ob *core.Outbox) core.Backlog {
	t.Helper()
	b, err := ob.Backlog(ctx)
	fixture.NoError(t, err)
	return b
}
