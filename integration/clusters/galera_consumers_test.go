//go:build clusters

package clusters_test

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/inbox/sqlinbox"
	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/once/command"
	"github.com/ormoutbox/ormoutbox/core/once/command/sqlcommand"
	"github.com/ormoutbox/ormoutbox/core/once/httpkey"
	"github.com/ormoutbox/ormoutbox/core/once/sqlonce"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
)

// consumer is an inbox, an endpoint with keys, and a worker of effects on one node.
type consumer struct {
	inbox   *inbox.Inbox
	handle  inbox.Handler
	server  http.Handler
	outbox  *core.Outbox
	refused atomic.Int64 // deliveries that were not acknowledged, and requests that failed
}

// Each message is delivered to consumers on two nodes, and each request is sent to both, more than
// once, while a node is killed and another one is cut off.
func galeraConsumers(t *testing.T, g galera) {
	pool := g.pool(t, 0)
	fixture.NewRepository(t, pool, sqloutbox.Config{Dialect: core.MySQL})
	fixture.NewInboxStore(t, pool, sqlinbox.Config{Dialect: core.MySQL})
	fixture.NewOnceStore(t, pool, sqlonce.Config{Dialect: core.MySQL})
	fixture.NewEffectStore(t, pool, sqlcommand.Config{Dialect: core.MySQL})
	fixture.MustExec(t, pool, "CREATE TABLE counter (k INT NOT NULL PRIMARY KEY, n BIGINT NOT NULL)")
	fixture.MustExec(t, pool, "INSERT INTO counter (k, n) VALUES (0, 0), (1, 0), (2, 0)")
	fixture.MustExec(t, pool, "CREATE TABLE consumed (i BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, "+
		"what VARCHAR(40) NOT NULL)")
	g.catchUp(t)

	var called sync.Map // idempotency keys of effects
	consumers := []*consumer{g.consumer(t, 0, &called), g.consumer(t, 1, &called)}
	running, end := context.WithCancel(t.Context())
	var relays sync.WaitGroup
	for _, c := range consumers {
		relays.Go(func() { fixture.NoError(t, c.outbox.Run(running)) })
	}
	defer relays.Wait()
	defer end()

	const all = 600
	var done atomic.Int64
	var work sync.WaitGroup
	next := make(chan int)
	for range 8 {
		work.Go(func() {
			for i := range next {
				var copies sync.WaitGroup
				for range 2 {
					for _, c := range consumers {
						copies.Go(func() {
							c.deliver(t.Context(), fmt.Sprintf("message-%d", i))
							c.request(t.Context(), fmt.Sprintf("request-%d", i))
						})
					}
				}
				copies.Wait()
				done.Add(1)
			}
		})
	}
	work.Go(func() {
		defer close(next)
		for i := range all {
			next <- i
		}
	})
	await := func(part float64) {
		fixture.AwaitIn(t, 5*time.Minute, "messages are consumed", func() bool {
			return float64(done.Load()) >= part*all
		})
	}
	await(0.2)
	g.nodes[1].Kill(t)
	fixture.Await(t, "a consumer notices", func() bool { return consumers[1].refused.Load() > 20 })
	g.nodes[1].Up(t)
	await(0.5)
	g.isolate(t, 0)
	fixture.Await(t, "a consumer notices", func() bool { return consumers[0].refused.Load() > 20 })
	g.reunite(t, 0)
	await(1)
	work.Wait()

	now := g.pool(t, 2, current)
	twice := fixture.Query(t, now, "SELECT CONCAT(what, ': ', COUNT(*)) FROM consumed "+
		"GROUP BY what HAVING COUNT(*) <> 1",
		func(rows *sql.Rows) (s string, err error) { return s, rows.Scan(&s) })
	n := fixture.Count(t, now, "SELECT COUNT(*) FROM consumed")
	fixture.Check(t, n == 2*all && len(twice) == 0,
		"%d effects of %d messages and as many requests, other than once: %v", n, all, twice)
	fixture.Check(t, fixture.Count(t, now, "SELECT SUM(n) FROM counter") == 2*all, "changes were lost or repeated")
	fixture.AwaitIn(t, 2*time.Minute, "effects are completed", func() bool {
		return fixture.Count(t, now, "SELECT COUNT(*) FROM side_effect_command WHERE status = 2") == all
	})
	calls, again := 0, 0
	called.Range(func(_, n any) bool {
		calls++
		again += int(n.(*atomic.Int64).Load()) - 1
		return true
	})
	fixture.Check(t, calls == all, "%d effects were called", calls)
	t.Logf("\ncount: %d messages consumed\ncount: %d requests\ncount: %d effects\n"+
		"%d calls again under the same key; refused: %d and %d",
		all, all, calls, again, consumers[0].refused.Load(), consumers[1].refused.Load())
}

func (g galera) consumer(t *testing.T, node int, called *sync.Map) *consumer {
	t.Helper()
	pool := g.pool(t, node)
	pool.SetMaxOpenConns(30)
	pool.SetMaxIdleConns(30)
	transactor := sqltx.NewTransactor(pool, core.MySQL)
	repo, err := sqloutbox.New(pool, sqloutbox.Config{Dialect: core.MySQL})
	fixture.NoError(t, err)
	received, err := sqlinbox.New(pool, sqlinbox.Config{Dialect: core.MySQL})
	fixture.NoError(t, err)
	keys, err := sqlonce.New(pool, sqlonce.Config{Dialect: core.MySQL})
	fixture.NoError(t, err)
	effects, err := sqlcommand.New(pool, sqlcommand.Config{Dialect: core.MySQL})
	fixture.NoError(t, err)

	worker, err := command.NewWorker(command.WorkerConfig{Store: effects, Handlers: map[string]command.Handler{
		"mail": func(_ context.Context, e command.Effect) (string, error) {
			n, _ := called.LoadOrStore(e.IdempotencyKey(), new(atomic.Int64))
			n.(*atomic.Int64).Add(1)
			return "", nil
		},
	}})
	fixture.NoError(t, err)
	router := core.NewRouter()
	worker.AddTo(router)
	c := &consumer{}
	c.outbox, err = core.New(core.Config{
		Repository: repo, Publisher: router, Node: fmt.Sprintf("node-%d", node),
		Relay: relay.Config{PollInterval: 200 * time.Millisecond},
	})
	fixture.NoError(t, err)
	queue, err := command.NewQueue(command.QueueConfig{Store: effects, Outbox: c.outbox})
	fixture.NoError(t, err)
	c.inbox, err = inbox.New(inbox.Config{
		Consumer: "ledger", Handler: "count", Store: received, Transactor: transactor, RetryPause: time.Millisecond,
	})
	fixture.NoError(t, err)
	// The counter makes transactions of the two nodes conflict.
	count := func(ctx context.Context, tx core.Tx, what string) error {
		if _, err := tx.Exec(ctx, "UPDATE counter SET n = n + 1 WHERE k = ?", rand.IntN(3)); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "INSERT INTO consumed (what) VALUES (?)", what)
		return err
	}
	c.handle = func(ctx context.Context, tx core.Tx, m inbox.Message) error {
		if err := count(ctx, tx, m.ID); err != nil {
			return err
		}
		_, _, err := queue.Enqueue(ctx, tx, command.Effect{Channel: "mail", Key: m.ID})
		return err
	}
	endpoint, err := httpkey.New(httpkey.Config{
		Keys: once.Config{Store: keys}, Transactor: transactor, Scope: func(*http.Request) string { return "ada" },
		Logger: slog.New(slog.DiscardHandler), // it would write of each refused request
	})
	fixture.NoError(t, err)
	mux := http.NewServeMux()
	mux.Handle("POST /count", endpoint.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tx, _ := core.TxFromContext(r.Context())
		if err := count(r.Context(), tx, r.Header.Get("Idempotency-Key")); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusCreated)
	})))
	c.server = mux
	return c
}

// deliver delivers a message until it is acknowledged, as a broker does.
func (c *consumer) deliver(ctx context.Context, id string) {
	for ctx.Err() == nil {
		if c.inbox.Process(ctx, inbox.Message{ID: id, Topic: "counted"}, c.handle).Action == inbox.Ack {
			return
		}
		c.refused.Add(1)
		_ = pause(ctx, 50*time.Millisecond)
	}
}

// request sends a request until it is answered, as a client does.
func (c *consumer) request(ctx context.Context, key string) {
	for ctx.Err() == nil {
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/count", nil)
		r.Header.Set("Idempotency-Key", key)
		w := httptest.NewRecorder()
		c.server.ServeHTTP(w, r)
		if w.Code == http.StatusCreated {
			return
		}
		c.refused.Add(1)
		_ = pause(ctx, 50*time.Millisecond)
	}
}
