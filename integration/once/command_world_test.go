package once_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/once/command"
	"github.com/ormoutbox/ormoutbox/core/once/command/sqlcommand"
	"github.com/ormoutbox/ormoutbox/core/once/sqlonce"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// effectWorld is a database with an outbox and a table of effects, and the outside systems that the
// effects go to.
type effectWorld struct {
	t      *testing.T
	db     testdb.DB
	pool   *sql.DB
	repo   *sqloutbox.Repository
	store  *sqlcommand.Store
	outbox *core.Outbox // without a relay
	queue  *command.Queue

	mu    sync.Mutex
	calls []command.Effect
	infos []command.ExecInfo
}

func eachEffectWorld(t *testing.T, fn func(t *testing.T, w *effectWorld)) {
	t.Helper()
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		w := &effectWorld{t: t, db: db, pool: db.Open(t)}
		w.repo = fixture.NewRepository(t, w.pool, sqloutbox.Config{Dialect: db.Dialect})
		w.store = fixture.NewEffectStore(t, w.pool, sqlcommand.Config{Dialect: db.Dialect})
		var err error
		w.outbox, err = core.New(core.Config{Repository: w.repo})
		fixture.NoError(t, err)
		w.queue, err = command.NewQueue(command.QueueConfig{Store: w.store, Outbox: w.outbox})
		fixture.NoError(t, err)
		fn(t, w)
	})
}

// keys makes a store of keys in the same database.
func (w *effectWorld) keys() *sqlonce.Store {
	w.t.Helper()
	return fixture.NewOnceStore(w.t, w.pool, sqlonce.Config{Dialect: w.db.Dialect})
}

func (w *effectWorld) inTx(fn func(ctx context.Context, tx core.Tx) error) error {
	return sqltx.RetryTx(w.t.Context(), sqltx.NewTransactor(w.pool, w.db.Dialect), fn)
}

// enqueue writes an effect in a transaction of its own.
func (w *effectWorld) enqueue(e command.Effect) (rec command.Record, added bool, err error) {
	err = w.inTx(func(ctx context.Context, _ core.Tx) (err error) {
		rec, added, err = w.queue.Enqueue(ctx, nil, e)
		return err
	})
	return rec, added, err
}

func (w *effectWorld) mustEnqueue(e command.Effect) command.Record {
	w.t.Helper()
	rec, added, err := w.enqueue(e)
	if err != nil || !added {
		w.t.Fatal(added, err)
	}
	return rec
}

// worker executes effects of the channel mail. It notes each call before it calls handler.
func (w *effectWorld) worker(handler command.Handler, set ...func(*command.WorkerConfig)) *command.Worker {
	w.t.Helper()
	cfg := command.WorkerConfig{
		Store: w.store,
		Handlers: map[string]command.Handler{"mail": func(ctx context.Context, e command.Effect) (string, error) {
			w.mu.Lock()
			w.calls = append(w.calls, e)
			w.mu.Unlock()
			return handler(ctx, e)
		}},
		Observer: func(info command.ExecInfo) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.infos = append(w.infos, info)
		},
	}
	for _, fn := range set {
		fn(&cfg)
	}
	worker, err := command.NewWorker(cfg)
	fixture.NoError(w.t, err)
	return worker
}

// relay runs the relay of another process, with a router that leads to the worker, until the test
// ends.
func (w *effectWorld) relay(worker *command.Worker) {
	w.t.Helper()
	router := core.NewRouter()
	worker.AddTo(router)
	w.runRelay(core.Config{Publisher: router, Relay: relay.Config{}})
}

// runRelay runs the relay of a process with short pauses until the test ends.
func (w *effectWorld) runRelay(cfg core.Config) *core.Outbox {
	w.t.Helper()
	cfg.Repository = w.repo
	fixture.ChangeRelay(&cfg, func(c *relay.Config) {
		c.PollInterval, c.MaxPollInterval = 20*time.Millisecond, 50*time.Millisecond
		c.Retry = relay.RetryPolicy{BaseDelay: time.Millisecond, MaxDelay: 10 * time.Millisecond}
		c.Breaker = relay.BreakerPolicy{ProbeInterval: 50 * time.Millisecond}
	})
	ob, err := core.New(cfg)
	fixture.NoError(w.t, err)
	fixture.RunRelay(w.t, ob)
	return ob
}

// ago sets a time column of effects to d before now, by the clock of the database.
func (w *effectWorld) ago(column string, d time.Duration, keys ...string) {
	w.t.Helper()
	at := map[core.Dialect]string{
		core.Postgres: "now() - interval '%d seconds'", core.MySQL: "UTC_TIMESTAMP(6) - INTERVAL %d SECOND",
		core.SQLite: "(unixepoch() - %d) * 1000000",
	}[w.db.Dialect]
	fixture.MustExec(w.t, w.pool, "UPDATE side_effect_command SET "+column+" = "+fmt.Sprintf(at, int(d.Seconds()))+
		" WHERE idempotency_key IN ('"+strings.Join(keys, "', '")+"')")
}

func (w *effectWorld) eventually(what string, good func() bool) {
	w.t.Helper()
	fixture.AwaitIn(w.t, 4*time.Minute, what, good)
}

// delivery returns the delivery that a relay gives to the worker for an effect.
func (w *effectWorld) delivery(rec command.Record, attempt int) core.Delivery {
	return core.Delivery{Event: core.Event{
		Topic: command.Topic(rec.Channel), TenantID: rec.Tenant,
		AggregateID: rec.ID,
	}, Attempt: attempt}
}

// await waits until the effect has the status.
func (w *effectWorld) await(e command.Effect, want command.Status) command.Record {
	w.t.Helper()
	var rec command.Record
	fixture.Await(w.t, fmt.Sprintf("effect %s/%s is %s", e.Channel, e.Key, want), func() bool {
		var err error
		rec, err = w.queue.Find(w.t.Context(), e.Tenant, e.Channel, e.Key)
		return err == nil && rec.Status == want
	})
	return rec
}

func (w *effectWorld) called() []command.Effect {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.calls
}

func mail(key string) command.Effect {
	return command.Effect{
		Channel: "mail", Tenant: "acme", Key: key, Payload: []byte("dear \x00\xff"), ContentType: "text/plain",
		Headers: map[string]string{"Subject": "Ä? $1"}, EventID: "018f", CorrelationID: "c", BusinessKey: "order-7",
	}
}

func sent(_ context.Context, e command.Effect) (string, error) { return "ref-" + e.Key, nil }

func refs(n int) string { return fmt.Sprintf("ref-%d", n) }
