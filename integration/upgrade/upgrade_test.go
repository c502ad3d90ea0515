package upgrade_test

import (
	"bufio"
	"database/sql"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/longtest"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// process is a running program.
type process struct {
	*testing.T
	name  string
	in    io.WriteCloser
	out   *bufio.Scanner
	ended func() error
}

// start runs the program of a process.
func start(t *testing.T, name, program string, db testdb.DB, b *broker) *process {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, name, string(db.Dialect), db.DSN, b.URL)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	fixture.NoError(t, err)
	out, err := cmd.StdoutPipe()
	fixture.NoError(t, err)
	fixture.NoError(t, cmd.Start())
	return &process{T: t, name: name, in: in, out: bufio.NewScanner(out), ended: cmd.Wait}
}

// do sends a command to the process, and waits until it is carried out.
func (p *process) do(format string, args ...any) {
	p.Helper()
	if _, err := fmt.Fprintf(p.in, format+"\n", args...); err != nil {
		p.Fatalf("%s: %v", p.name, err)
	}
	if !p.out.Scan() || p.out.Text() != "ok" {
		p.Fatalf("%s ended at %q", p.name, fmt.Sprintf(format, args...))
	}
}

// stop ends the process, which must have no error.
func (p *process) stop() {
	p.Helper()
	if err := p.in.Close(); err != nil {
		p.Errorf("%s: %v", p.name, err)
	}
	if err := p.ended(); err != nil {
		p.Errorf("%s: %v", p.name, err)
	}
}

// A process of the version before works on its own tables. The tables are migrated to the later
// version while it runs. Then it produces and relays beside a process of the later version. Every
// event arrives once, and in the order of its key. Both processes try refused events again, and each
// redrives the dead event of the other one.
func TestVersionBeforeOnThePresentTables(t *testing.T) {
	longtest.Mark(t)
	t.Parallel()
	before, later := versions(t)
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		migrate(t, before, db)
		pool, b := db.Open(t), newBroker(t)
		old := start(t, "before", before.process, db, b)
		produce(old, 0)
		await(t, b, eventsOfRound)
		migrate(t, later, db)
		joined := start(t, "later", later.process, db, b)
		joined.do("relays 2")
		old.do("relays 2")
		together(t, pool, b, old, joined)
	})
}

// A round publishes events of two types. Each type is published with a key of both processes, with
// one of three further keys, and without a key.
const (
	eventsOf      = 2 // events that one command produces
	eventsOfRound = 2 * 3 * eventsOf
)

// produce has the process publish the events of a round.
func produce(p *process, round int) {
	for _, typ := range []string{"paid", "flaky"} {
		p.do("produce %s shared", typ)
		p.do("produce %s k%d", typ, round%3)
		p.do("produce %s -", typ)
	}
}

// together has the processes work on the same tables until they end, and checks the events that
// arrived.
func together(t *testing.T, pool *sql.DB, b *broker, processes ...*process) {
	t.Helper()
	const rounds = 6
	all := make(chan struct{})
	for _, p := range processes {
		go func() {
			defer func() { all <- struct{}{} }()
			for n := range rounds {
				produce(p, n)
			}
			p.do("produce poison %s", p.name) // the next event of the key waits behind it
			p.do("produce paid %s", p.name)
		}()
	}
	for range processes {
		<-all
	}
	want := eventsOfRound + len(processes)*rounds*eventsOfRound
	await(t, b, want)
	fixture.AwaitIn(t, time.Minute, "the first poisoned event of each process is dead", func() bool {
		return fixture.Count(t, pool, "SELECT COUNT(*) FROM outbox_event WHERE status = 3") == int64(len(processes))
	})
	b.mend()
	for n, p := range processes { // events that the other process has produced
		p.do("redrive %s", processes[1-n].name)
	}
	want += len(processes) * 2 * eventsOf
	await(t, b, want)
	for _, p := range processes {
		p.stop()
	}

	got, last, by := b.taken(), map[string]int64{}, b.by()
	for _, d := range got {
		if d.Key == "" {
			continue
		}
		if last[d.Key] != 0 && d.Seq != last[d.Key]+1 {
			t.Errorf("%s sent number %d of the key %s after number %d", d.By, d.Seq, d.Key, last[d.Key])
		}
		last[d.Key] = d.Seq
	}
	if len(got) != want || by["before"] == 0 || by["later"] == 0 {
		t.Errorf("%d events of %d arrived: %v", len(got), want, by)
	}
	if n := fixture.Count(t, pool, "SELECT COUNT(*) FROM outbox_event WHERE status <> 1"); n != 0 {
		t.Errorf("%d events are not done", n)
	}
	if n := fixture.Count(t, pool, "SELECT COUNT(*) FROM outbox_relay"); n != 0 {
		t.Errorf("%d heartbeats are left", n)
	}
}

// await waits until n events have arrived.
func await(t *testing.T, b *broker, n int) {
	t.Helper()
	fixture.AwaitIn(t, time.Minute, fmt.Sprintf("%d events arrive", n), func() bool { return len(b.taken()) >= n })
}
