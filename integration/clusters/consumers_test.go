//go:build clusters

package clusters_test

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
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

// messages is how many messages are delivered, and how many requests are sent.
const messages = 600

// consumers are two consumers of one database on the nodes of a cluster. Each message is delivered to
// both, and each request is sent to both, twice at the same time, until all have answered.
type consumers struct {
	t       *testing.T
	all     []*consumer
	called  sync.Map     // how often each effect was called, by its idempotency key
	done    atomic.Int64 // messages and requests that all copies were answered for
	working sync.WaitGroup
	end     context.CancelFunc // ends the relays
	relays  sync.WaitGroup
}

// consumer is an inbox, an endpoint with keys, and a worker of effects on one pool.
type consumer struct {
	inbox   *inbox.Inbox
	handle  inbox.Handler
	server  http.Handler
	outbox  *core.Outbox
	refused atomic.Int64 // deliveries that were not acknowledged, and requests that failed
}

// openPool opens a pool until the test ends.
func openPool(t *testing.T, open func(address string) (*sql.DB, error), address string) *sql.DB {
	t.Helper()
	pool, err := open(address)
	fixture.NoError(t, err)
	t.Cleanup(func() { _ = pool.Close() })
	return pool
}

// createConsumerTables makes the tables of consumers on one node.
func createConsumerTables(t *testing.T, d core.Dialect, pool *sql.DB) {
	t.Helper()
	fixture.NewRepository(t, pool, sqloutbox.Config{Dialect: d})
	fixture.NewInboxStore(t, pool, sqlinbox.Config{Dialect: d})
	fixture.NewOnceStore(t, pool, sqlonce.Config{Dialect: d})
	fixture.NewEffectStore(t, pool, sqlcommand.Config{Dialect: d})
	fixture.MustExec(t, pool, "CREATE TABLE counter (k INT NOT NULL PRIMARY KEY, n BIGINT NOT NULL)")
	fixture.MustExec(t, pool, "CREATE TABLE consumed (id VARCHAR(40) NOT NULL PRIMARY KEY, what VARCHAR(40) NOT NULL)")
	for k := range keys {
		fixture.MustExec(t, pool, fmt.Sprintf("INSERT INTO counter (k, n) VALUES (%d, 0)", k))
	}
}

// startConsumers starts a consumer on each pool, and delivers. The tables are there on every node.
func startConsumers(t *testing.T, d core.Dialect, pools ...*sql.DB) *consumers {
	t.Helper()
	c := &consumers{t: t}
	running, end := context.WithCancel(context.Background())
	c.end = end
	t.Cleanup(func() {
		end()
		c.relays.Wait()
	})
	for i, pool := range pools {
		pool.SetMaxOpenConns(30)
		pool.SetMaxIdleConns(30)
		one := c.open(d, pool, fmt.Sprintf("node-%d", i))
		c.all = append(c.all, one)
		c.relays.Go(func() {
			for running.Err() == nil { // Run may begin while the node is away
				if err := one.outbox.Run(running); err != nil {
					one.refused.Add(1)
				}
				_ = pause(running, time.Second)
			}
		})
	}
	next := make(chan int)
	c.working.Go(func() {
		defer close(next)
		for i := range messages {
			next <- i
		}
	})
	for range 8 {
		c.working.Go(func() {
			for i := range next {
				var copies sync.WaitGroup
				for range 2 {
					for _, one := range c.all {
						copies.Go(func() {
							one.deliver(t.Context(), fmt.Sprintf("message-%d", i))
							one.request(t.Context(), fmt.Sprintf("request-%d", i))
						})
					}
				}
				copies.Wait()
				c.done.Add(1)
			}
		})
	}
	return c
}

// Await waits until a part of all messages is consumed.
func (c *consumers) Await(part float64) {
	c.t.Helper()
	fixture.AwaitIn(c.t, 5*time.Minute, "messages are consumed", func() bool {
		return float64(c.done.Load()) >= part*messages
	})
}

// AwaitRefused waits until a consumer has noticed that its node is away.
func (c *consumers) AwaitRefused(number int) {
	c.t.Helper()
	until := c.all[number].refused.Load() + 20
	fixture.AwaitIn(c.t, time.Minute, "a consumer notices", func() bool {
		return c.all[number].refused.Load() > until
	})
}

// Finish waits until all is consumed, and compares the tables with what was delivered.
func (c *consumers) Finish(now *sql.DB) {
	t := c.t
	t.Helper()
	c.Await(1)
	c.working.Wait()
	other := map[string]int{}
	for _, what := range fixture.Query(t, now, "SELECT what FROM consumed",
		func(rows *sql.Rows) (s string, err error) { return s, rows.Scan(&s) }) {
		other[what]++
	}
	n := len(other)
	maps.DeleteFunc(other, func(_ string, n int) bool { return n == 1 })
	fixture.Check(t, n == 2*messages && len(other) == 0,
		"%d of %d messages and as many requests have an effect; more than once: %v", n, messages, other)
	fixture.Check(t, fixture.Count(t, now, "SELECT SUM(n) FROM counter") == 2*messages, "changes were lost or repeated")
	fixture.AwaitIn(t, 2*time.Minute, "effects are completed", func() bool {
		return fixture.Count(t, now, "SELECT COUNT(*) FROM side_effect_command WHERE status = 2") == messages
	})
	c.end()
	c.relays.Wait()
	calls, again := 0, 0
	c.called.Range(func(_, n any) bool {
		calls++
		again += int(n.(*atomic.Int64).Load()) - 1
		return true
	})
	fixture.Check(t, calls == messages, "%d effects were called", calls)
	t.Logf("\ncount: %d messages consumed\ncount: %d requests\ncount: %d effects\n"+
		"%d calls again under the same key; refused: %d and %d",
		messages, messages, calls, again, c.all[0].refused.Load(), c.all[1].refused.Load())
}

func (c *consumers) open(d core.Dialect, pool *sql.DB, node string) *consumer {
	t := c.t
	t.Helper()
	quiet := slog.New(slog.DiscardHandler) // it would write of each delivery and request that is refused
	transactor := sqltx.NewTransactor(pool, d)
	repo, err := sqloutbox.New(pool, sqloutbox.Config{Dialect: d})
	fixture.NoError(t, err)
	received, err := sqlinbox.New(pool, sqlinbox.Config{Dialect: d})
	fixture.NoError(t, err)
	keys, err := sqlonce.New(pool, sqlonce.Config{Dialect: d})
	fixture.NoError(t, err)
	effects, err := sqlcommand.New(pool, sqlcommand.Config{Dialect: d})
	fixture.NoError(t, err)

	worker, err := command.NewWorker(command.WorkerConfig{Store: effects, Handlers: map[string]command.Handler{
		"mail": func(_ context.Context, e command.Effect) (string, error) {
			n, _ := c.called.LoadOrStore(e.IdempotencyKey(), new(atomic.Int64))
			n.(*atomic.Int64).Add(1)
			return "", nil
		},
	}})
	fixture.NoError(t, err)
	router := core.NewRouter()
	worker.AddTo(router)
	one := &consumer{}
	one.outbox, err = core.New(core.Config{
		Repository: repo, Publisher: router, Node: node,
		Relay: relay.Config{PollInterval: 200 * time.Millisecond},
	})
	fixture.NoError(t, err)
	queue, err := command.NewQueue(command.QueueConfig{Store: effects, Outbox: one.outbox})
	fixture.NoError(t, err)
	one.inbox, err = inbox.New(inbox.Config{
		Consumer: "ledger", Handler: "count", Store: received, Transactor: transactor, RetryPause: time.Millisecond,
		Logger: quiet,
	})
	fixture.NoError(t, err)
	// The counter makes transactions of the two nodes conflict.
	count := func(ctx context.Context, tx core.Tx, what string) error {
		_, err := tx.Exec(ctx, placeholders(d, "UPDATE counter SET n = n + 1 WHERE k = ?"), rand.IntN(3))
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, placeholders(d, "INSERT INTO consumed (id, what) VALUES (?, ?)"),
			strconv.FormatUint(rand.Uint64(), 36), what)
		return err
	}
	one.handle = func(ctx context.Context, tx core.Tx, m inbox.Message) error {
		if err := count(ctx, tx, m.ID); err != nil {
			return err
		}
		_, _, err := queue.Enqueue(ctx, tx, command.Effect{Channel: "mail", Key: m.ID})
		return err
	}
	endpoint, err := httpkey.New(httpkey.Config{
		Keys: once.Config{Store: keys}, Transactor: transactor, Scope: func(*http.Request) string { return "ada" },
		Logger: quiet,
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
	one.server = mux
	return one
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
