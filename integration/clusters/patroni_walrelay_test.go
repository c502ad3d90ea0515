//go:build clusters

package clusters_test

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/adapter"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/pgxoutbox/walrelay"
)

// byLog makes a producer leave its events to a reader of the log.
func byLog(write way) way {
	return func(d core.Dialect, pool *sql.DB, cfg adapter.Config) (producer, error) {
		cfg.RelayedByLog = true
		return write(d, pool, cfg)
	}
}

// lines are the lines of a log.
type lines struct {
	mu  sync.Mutex
	all strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(b)
}

func (l *lines) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.all.String(), text)
}

// logged is a program whose events a relay publishes from the log.
type logged struct {
	*patroni
	*ledger
	address, doctor string // of all nodes; the program
	slot            string
	log             lines
	published       atomic.Int64
}

func startLogged(p *patroni, slot string) *logged {
	p.t.Helper()
	w := &logged{patroni: p, slot: slot, doctor: filepath.Join(p.t.TempDir(), "outbox")}
	build := exec.Command("go", "build", "-o", w.doctor, ".")
	build.Dir = filepath.Join(fixture.Root(p.t), "cmd", "outbox")
	out, err := build.CombinedOutput()
	fixture.Must(p.t, err == nil, "go build: %v\n%s", err, out)
	w.address, _, _ = p.database(slot)
	run := program{
		Dialect: core.Postgres, Open: open, Producers: []string{w.address, w.address},
		Write: inTurn(byLog(withPGX(w.address)), byLog(withConnector(w.address, withGORM))),
	}
	run.createTables(p.t, w.address)
	w.ledger = start(p.t, run)
	config, err := pgxpool.ParseConfig(w.address)
	fixture.NoError(p.t, err)
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	fixture.NoError(p.t, err)
	p.t.Cleanup(func() {
		w.endRelaying()
		w.relays.Wait()
		pool.Close()
		if p.t.Failed() {
			p.t.Log(w.log.all.String())
		}
	})
	outbox := core.Config{
		Publisher: w.publisher("walrelay", &w.published), Relay: relay.Config{},
		Logger: slog.New(slog.NewTextHandler(&w.log, nil)),
	}
	relay, err := walrelay.New(walrelay.Config{Pool: pool, Slot: slot, Create: true, Failover: true, Outbox: outbox})
	fixture.NoError(p.t, err)
	w.run(relay.Run)
	return w
}

// goesOn waits until each producer commits, and the relay publishes.
func (w *logged) goesOn() {
	w.patroni.t.Helper()
	for i := range w.Producers {
		w.AwaitCommits(i, 50)
	}
	w.ledger.await("the relay publishes 100 events", &w.published, 100)
}

// standby returns why the slot is not ready on the standby. Empty: it is ready.
func (w *logged) standby() string {
	w.patroni.t.Helper()
	config, err := pgx.ParseConfig(w.address)
	fixture.NoError(w.patroni.t, err)
	all := walrelay.Standbys(context.Background(), config, w.slot)
	if len(all) != 1 {
		return fmt.Sprintf("%d standbys", len(all))
	}
	return all[0].Unready
}

func (w *logged) awaitReady() {
	w.patroni.t.Helper()
	since, last := time.Now(), ""
	fixture.AwaitIn(w.patroni.t, 5*time.Minute, "the slot is ready on the standby", func() bool {
		if now := w.standby(); now != last {
			w.patroni.t.Logf("after %s: %q", time.Since(since).Round(time.Second), now)
			last = now
		}
		return last == ""
	})
}

// doctorSays runs outbox doctor until it says something.
func (w *logged) doctorSays(text string) {
	w.patroni.t.Helper()
	var out []byte
	fixture.AwaitIn(w.patroni.t, 2*time.Minute, "doctor says "+text, func() bool {
		cmd := exec.CommandContext(w.patroni.t.Context(), w.doctor, "doctor")
		cmd.Env = append(os.Environ(), "DATABASE_URL="+w.address)
		out, _ = cmd.CombinedOutput()
		return strings.Contains(string(out), text)
	})
	i := strings.Index(string(out), text)
	w.patroni.t.Logf("doctor: %s", out[strings.LastIndexByte(string(out[:i]), '\n')+1:])
}

// finish waits until all orders are published. Events of the log have no state in their rows.
func (w *logged) finish() verdict {
	w.patroni.t.Helper()
	w.endWriting()
	w.producers.Wait()
	pool, err := open(w.address)
	fixture.NoError(w.patroni.t, err)
	defer pool.Close()
	fixture.AwaitIn(w.patroni.t, 2*time.Minute, "the relay publishes all orders", func() bool {
		return w.judge(pool).Lost == 0
	})
	return w.Finish(w.address)
}

// A relay reads the log by a failover slot, and the leader is switched over and killed. The relay goes
// on at the new leader, and repairs nothing after the switchover. The doctor and the relay tell
// whether the standby has the slot. A killed leader may take its newest commits with it.
func TestPatroniFailoverSlot(t *testing.T) {
	p := startPatroni(t)
	old := p.leader()
	p.awaitFollower(1-old, false)
	w := startLogged(p, "followed")
	w.goesOn()
	w.awaitReady()
	w.doctorSays(fmt.Sprintf(", and ready on 127.0.0.1:%d", p.ports[1-old]))

	p.switchover()
	w.goesOn()
	// PostgreSQL copies no slot to a standby that still has the slot which it had as the primary.
	w.doctorSays("it keeps the slot of the time when it was the primary")
	standby, err := open(p.nodes[old].Address)
	fixture.NoError(t, err)
	defer standby.Close()
	fixture.MustExec(t, standby, "SELECT pg_drop_replication_slot('followed')")
	w.awaitReady()

	n := w.log.count("events are published from the table")
	fixture.Check(t, n == 0, "the relay has repaired the slot %d times", n)

	old = p.leader()
	told := w.log.count("the slot cannot follow to the standby")
	p.nodes[old].Kill(t)
	p.await(1-old, "primary")
	for i := range w.Producers {
		w.AwaitCommits(i, 50)
	}
	w.doctorSays("the server holds back the events of slot followed: synchronized_standby_slots names patroni" +
		fmt.Sprint(old+1))
	fixture.AwaitIn(t, 3*time.Minute, "the relay tells it", func() bool {
		return w.log.count("the slot cannot follow to the standby") > told
	})
	p.nodes[old].Up(t)
	w.goesOn()
	w.awaitReady()
	fixture.AwaitIn(t, 3*time.Minute, "the relay tells that the standby is ready", func() bool {
		return w.log.count("the standby is ready for the slot") > 0
	})
	v := w.finish()
	fixture.Check(t, v.Ghosts == 0, "%d events were read from the log that the standby did not have", v.Ghosts)
	w.withoutLost(w.address).Check(t)
}
