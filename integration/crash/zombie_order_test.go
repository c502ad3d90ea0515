package crash_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/crash"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// Three processes relay one table, and two of them write to the same keys. The broker fails now and
// then. One process after the other is killed, or becomes a zombie: it is stopped until another
// process has taken its work over, and then goes on. First copies stay in order.
func TestZombieOrder(t *testing.T) { // not parallel: its processes need the whole machine
	disturbances := 10
	if testing.Short() {
		disturbances = 4
	}
	for name, open := range map[string]func(*testing.T) testdb.DB{
		"postgres": testdb.Postgres,
		"mariadb":  testdb.MariaDB,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := open(t)
			prepareCrashDB(t, db)
			herd := newHerd(t, db)
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			defer cancel()
			kills, zombies := 0, 0
			for n := range disturbances {
				if n%2 == 0 {
					herd.kill(ctx, t, n/2%3)
					kills++
				} else {
					herd.haunt(ctx, t, n/2%3)
					zombies++
				}
			}
			herd.finish(ctx, t)

			v, err := judge(ctx, name+": 3 relays", db, herd.ledger.Records())
			fixture.NoError(t, err)
			v.Kills = kills
			// Every duplicate has a reason: a process was killed or stopped, an answer was lost, or
			// a lease ran out on a slow machine.
			reasons := herd.ledger.Lost() + herd.ledger.Note("", "unanswered") + herd.ledger.Note("", "late acks")
			v.Limit((kills+zombies)*crash.Spec{}.DuplicatesPerKill()+reasons, nil)
			if err := v.Err(); err != nil {
				t.Error(err)
			}
			t.Logf("%s%d zombies; fenced writes %d, late acknowledgements %d, lost answers %d",
				crash.Table([]crash.Verdict{v}), zombies,
				herd.ledger.Note("", "fenced"), herd.ledger.Note("", "late acks"), herd.ledger.Lost())
		})
	}
}

// herd is three processes on one table.
type herd struct {
	db        testdb.DB
	pool      *sql.DB
	ledger    *crash.Ledger
	processes [3]*crash.Process
	started   int

	mu      sync.Mutex
	random  *rand.Rand
	victim  string // the process whose next ordered publish is held
	caught  chan crash.Message
	release chan struct{}
}

func newHerd(t *testing.T, db testdb.DB) *herd {
	t.Helper()
	h := &herd{db: db, pool: db.Open(t), random: rand.New(rand.NewPCG(rand.Uint64(), 0))}
	var err error
	if h.ledger, err = crash.NewLedger(h.judge); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.ledger.Close)
	for slot := range h.processes {
		h.start(t, slot)
	}
	t.Cleanup(func() { // also after a failure; Kill does nothing to a process that has ended
		for _, p := range h.processes {
			_ = p.Kill()
		}
	})
	return h
}

func (h *herd) start(t *testing.T, slot int) {
	t.Helper()
	h.started++
	s := crash.Spec{
		Name: fmt.Sprintf("relay-%d-%d", slot, h.started), Dialect: h.db.Dialect, DSN: h.db.DSN,
		Ledger: h.ledger.Addr(), Topic: "zombie", Relay: true, Keys: keysPerCell, Seed: rand.Uint64(), HotEvents: 8,
		Pause: 5 * time.Millisecond,
	}
	if slot < 2 {
		s.Writers = 2
	}
	p, err := crash.Start(s)
	fixture.NoError(t, err)
	h.processes[slot] = p
}

// judge fails one publish of twenty, and holds one when a zombie is wanted.
func (h *herd) judge(m crash.Message) crash.Answer {
	h.mu.Lock()
	dice := h.random.IntN(100)
	caught, release := h.caught, h.release
	hold := h.victim == m.From && m.KeySeq != 0
	if hold {
		h.victim = ""
	}
	h.mu.Unlock()
	switch {
	case hold: // accepted, but late
		caught <- m
		<-release
		return crash.Accept
	case dice < 2:
		return crash.Transient
	case dice < 4:
		return crash.LoseAnswer
	case dice < 5:
		return crash.Unavailable
	}
	return crash.Accept
}

// await waits until the ledger shows something.
func (h *herd) await(ctx context.Context, t *testing.T, what string,
	cond func([]crash.Message, func(string, string) int) bool,
) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 40*time.Second)
	defer cancel()
	fixture.Must(t, h.ledger.Wait(ctx.Done(), cond), "waited in vain until %s", what)
}

func publishes(name string) func([]crash.Message, func(string, string) int) bool {
	return func(records []crash.Message, _ func(string, string) int) bool {
		for _, m := range records {
			if m.From == name {
				return true
			}
		}
		return false
	}
}

// kill ends a process that is at work and starts another in its place.
func (h *herd) kill(ctx context.Context, t *testing.T, slot int) {
	t.Helper()
	h.await(ctx, t, h.processes[slot].Name+" publishes", publishes(h.processes[slot].Name))
	fixture.NoError(t, h.processes[slot].Kill())
	h.start(t, slot)
}

// haunt makes a process a zombie: it stops the process and lets it go on after its lease has ended.
func (h *herd) haunt(ctx context.Context, t *testing.T, slot int) {
	t.Helper()
	for range 5 {
		if h.stopAndGo(ctx, t, slot) {
			return
		}
	}
	t.Fatal("no process took over the events of the stopped one")
}

// stopAndGo stops a process in the middle of a publish. It waits until another process has
// published and marked that event, and then lets the first one go on. So the first one's copy comes
// last, and its mark changes nothing. stopAndGo returns false if no other process has marked the
// event in time. The stopped process may then hold the row locked in an open transaction, which
// only the database can end.
func (h *herd) stopAndGo(ctx context.Context, t *testing.T, slot int) (haunted bool) {
	t.Helper()
	p := h.processes[slot]
	caught, release := make(chan crash.Message, 1), make(chan struct{})
	letGo := sync.OnceFunc(func() { close(release) })
	defer letGo()
	h.mu.Lock()
	h.victim, h.caught, h.release = p.Name, caught, release
	h.mu.Unlock()
	var held crash.Message
	select {
	case held = <-caught:
	case <-p.Done():
		t.Fatal(p.Killed())
	case <-time.After(40 * time.Second):
		t.Fatalf("%s publishes nothing ordered", p.Name)
	}
	fixture.NoError(t, p.Signal(syscall.SIGSTOP))
	before := h.ledger.Note(p.Name, "fenced") + h.ledger.Note(p.Name, "late acks")
	patience, cancel := context.WithTimeout(ctx, 8*crash.ClaimLease)
	defer cancel()
	haunted = h.done(patience, t, held.EventID)
	fixture.NoError(t, p.Signal(syscall.SIGCONT))
	letGo()
	if !haunted {
		return false
	}
	h.await(ctx, t, p.Name+" is told that it lost its claim",
		func(_ []crash.Message, note func(string, string) int) bool {
			return note(p.Name, "fenced")+note(p.Name, "late acks") > before
		})
	return true
}

// done waits until a process has marked the event.
func (h *herd) done(ctx context.Context, t *testing.T, event string) bool {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		var n int
		err := h.pool.QueryRowContext(t.Context(),
			"SELECT COUNT(*) FROM outbox_event WHERE status = 1 AND event_id = '"+event+"'").Scan(&n)
		fixture.NoError(t, err)
		if n == 1 {
			return true
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return false
		}
	}
}

// finish ends the writing, waits until no event is open, and stops the processes gracefully.
func (h *herd) finish(ctx context.Context, t *testing.T) {
	t.Helper()
	for _, p := range h.processes {
		if err := p.Quiet(); err != nil {
			t.Fatal(errors.Join(err, p.Stop()))
		}
	}
	for _, p := range h.processes {
		h.await(ctx, t, p.Name+" writes no more", func(_ []crash.Message, note func(string, string) int) bool {
			return note(p.Name, "quiet") > 0
		})
	}
	repo, err := sqloutbox.New(h.pool, sqloutbox.Config{Dialect: h.db.Dialect})
	fixture.NoError(t, err)
	ob, err := core.New(core.Config{Repository: repo})
	fixture.NoError(t, err)
	if err := untilEmpty(ctx, ob); err != nil {
		t.Fatalf("%v\n%s", err, openRows(h.pool))
	}
	for _, p := range h.processes {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	}
}
