package docs

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/topics"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// Every whole program of a page is built and run. Tests of its own run the tutorial.
func TestProgramsRun(t *testing.T) {
	t.Parallel()
	runs := map[string]func(t *testing.T, code string){
		"docs/tutorial.md": nil,
		"docs/inbox.md":    runConsumer,
		"docs/pgx.md":      runPublisher,
	}
	for _, page := range pages(t) {
		for _, b := range goBlocks(t, page) {
			if !strings.HasPrefix(b.code, "package main\n") {
				continue
			}
			run, known := runs[page]
			if !known {
				t.Errorf("%s:%d: no test runs this program", page, b.line)
			}
			delete(runs, page)
			if run != nil {
				t.Run(page, func(t *testing.T) {
					t.Parallel()
					run(t, b.code)
				})
			}
		}
	}
	for page := range runs {
		t.Errorf("%s has no program", page)
	}
}

func runPublisher(t *testing.T, code string) {
	p := start(t, code, "DATABASE_URL="+testdb.Postgres(t).DSN)
	fixture.Await(t, "the program publishes", func() bool {
		return strings.HasPrefix(p.output(), "published: order.placed {") && strings.HasSuffix(p.output(), "}\n")
	})
	p.stop(t)
}

// runConsumer delivers each event twice. Each has one invoice.
func runConsumer(t *testing.T, code string) {
	db := testdb.Postgres(t)
	pool := db.Open(t)
	fixture.MustExec(t, pool, "CREATE TABLE invoices (document TEXT NOT NULL)")
	topic := topics.Kafka(t, "", 1, nil)
	for from, to := range map[string]string{
		`"postgres://localhost/billing"`: quoted(t, db.DSN),
		`"localhost:9092"`:               quoted(t, topics.KafkaAddress(t)),
		`kgo.ConsumerGroup("billing")`:   `kgo.ConsumerGroup("g-` + core.NewEventID() + `")`,
		`kgo.ConsumeTopics("orders")`:    `kgo.ConsumeTopics("` + topic + `")`,
	} {
		if strings.Count(code, from) != 1 {
			t.Fatalf("the program has %s %d times", from, strings.Count(code, from))
		}
		code = strings.Replace(code, from, to, 1)
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(topics.KafkaAddress(t)), kgo.DefaultProduceTopic(topic))
	fixture.NoError(t, err)
	defer client.Close()
	p := start(t, code)
	for _, document := range []string{"one", "two", "three"} {
		id := []kgo.RecordHeader{{Key: core.HeaderEventID, Value: []byte(core.NewEventID())}}
		for range 2 {
			r := &kgo.Record{Value: []byte(document), Headers: id}
			fixture.NoError(t, client.ProduceSync(t.Context(), r).FirstErr())
		}
	}
	fixture.Await(t, "the last event has an invoice", func() bool {
		return fixture.Count(t, pool, "SELECT count(*) FROM invoices WHERE document = 'three'") > 0
	})
	p.stop(t)
	if n := fixture.Count(t, pool, "SELECT count(*) FROM invoices"); n != 3 {
		t.Errorf("%d invoices of three events", n)
	}
}

func quoted(t *testing.T, s string) string {
	t.Helper()
	q, err := json.Marshal(s)
	fixture.NoError(t, err)
	return string(q)
}

// program is a running program of a page.
type program struct {
	cmd   *exec.Cmd
	mu    sync.Mutex
	wrote bytes.Buffer
}

// start builds a program with the packages of this module, and starts it.
func start(t *testing.T, code string, env ...string) *program {
	t.Helper()
	dir := t.TempDir()
	source, binary := filepath.Join(dir, "main.go"), filepath.Join(dir, "program")
	fixture.NoError(t, os.WriteFile(source, []byte(code), 0o600))
	here, err := os.Getwd()
	fixture.NoError(t, err)
	overlay, err := json.Marshal(map[string]any{
		"Replace": map[string]string{filepath.Join(here, "program", "main.go"): source},
	})
	fixture.NoError(t, err)
	list := filepath.Join(dir, "overlay.json")
	fixture.NoError(t, os.WriteFile(list, overlay, 0o600))
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-ldflags=-s -w", "-overlay", list,
		"-o", binary, "./program")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	p := &program{cmd: exec.CommandContext(t.Context(), binary)}
	p.cmd.Dir, p.cmd.Env = dir, append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = p, p
	fixture.NoError(t, p.cmd.Start())
	return p
}

// Write keeps what the program prints.
func (p *program) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.wrote.Write(b)
}

func (p *program) output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.wrote.String()
}

// stop interrupts the program, which ends without an error.
func (p *program) stop(t *testing.T) {
	t.Helper()
	fixture.NoError(t, p.cmd.Process.Signal(syscall.SIGINT))
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("%v, printed:\n%s", err, p.output())
	}
}
