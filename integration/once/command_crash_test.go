package once_test

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/once/command"
	"github.com/ormoutbox/ormoutbox/core/once/command/sqlcommand"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

const effectChildVariable = "OUTBOX_TEST_EFFECT_CHILD"

// effectChildSpec tells a child of TestEffectKilledBetweenCallAndMark what to do.
type effectChildSpec struct {
	Dialect core.Dialect
	DSN     string
}

// run relays effects, makes the call and then waits to be killed.
func (s effectChildSpec) run(ctx context.Context) error {
	pool, err := sql.Open(map[core.Dialect]string{
		core.Postgres: "pgx", core.MySQL: "mysql",
		core.SQLite: "sqlite",
	}[s.Dialect], s.DSN)
	if err != nil {
		return err
	}
	store, err := sqlcommand.New(pool, sqlcommand.Config{Dialect: s.Dialect})
	if err != nil {
		return err
	}
	repo, err := sqloutbox.New(pool, sqloutbox.Config{Dialect: s.Dialect})
	if err != nil {
		return err
	}
	worker, err := command.NewWorker(command.WorkerConfig{
		Store: store, Lease: time.Second,
		Handlers: map[string]command.Handler{"mail": func(_ context.Context, e command.Effect) (string, error) {
			fmt.Println("called", e.IdempotencyKey())
			select {}
		}},
	})
	if err != nil {
		return err
	}
	router := core.NewRouter()
	worker.AddTo(router)
	ob, err := core.New(core.Config{
		Repository: repo, Publisher: router, Relay: relay.Config{
			PollInterval: 20 * time.Millisecond, PublishTimeout: time.Second,
			ClaimLease: 3 * time.Second, HotLease: 3 * time.Second, LeaseMargin: 500 * time.Millisecond,
		},
	})
	if err != nil {
		return err
	}
	return ob.Run(ctx)
}

// A process is killed after the call and before its mark. The next process makes the call again,
// under the same key, once.
func TestEffectKilledBetweenCallAndMark(t *testing.T) {
	t.Parallel()
	if text := os.Getenv(effectChildVariable); text != "" {
		var spec effectChildSpec
		fixture.NoError(t, json.Unmarshal([]byte(text), &spec))
		fixture.NoError(t, spec.run(t.Context()))
		return
	}
	eachEffectWorld(t, func(t *testing.T, w *effectWorld) {
		w.mustEnqueue(mail("1"))
		key := killAtCall(t, w.db)
		if rec, err := w.queue.Find(t.Context(), "acme", "mail", "1"); err != nil ||
			rec.Status != command.StatusProcessing {
			t.Errorf("after the kill: %+v, %v", rec, err)
		}
		w.relay(w.worker(sent))
		rec := w.await(mail("1"), command.StatusCompleted)
		calls := w.called()
		if len(calls) != 1 || calls[0].IdempotencyKey() != key || rec.LostLeases != 1 || rec.ExternalRef != "ref-1" {
			t.Errorf("%d calls, first %s, now %s, %+v", len(calls), key, mail("1").IdempotencyKey(), rec)
		}
	})
}

// killAtCall runs a child until it makes a call, kills it, and returns the key of the call.
func killAtCall(t *testing.T, db testdb.DB) (key string) {
	t.Helper()
	spec, err := json.Marshal(effectChildSpec{Dialect: db.Dialect, DSN: db.DSN})
	fixture.NoError(t, err)
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestEffectKilledBetweenCallAndMark$",
		"-test.timeout=60s")
	child.Env = append(os.Environ(), effectChildVariable+"="+string(spec))
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	fixture.NoError(t, err)
	fixture.NoError(t, child.Start())
	lines := bufio.NewScanner(out)
	for key == "" && lines.Scan() {
		_, _ = fmt.Sscanf(lines.Text(), "called %s", &key)
	}
	if err := child.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = child.Wait() // killed
	fixture.Must(t, key != "", "the child made no call")
	return key
}
