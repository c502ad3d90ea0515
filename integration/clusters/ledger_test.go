//go:build clusters

package clusters_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/adapter"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
)

const (
	keys       = 12 // all producers share them
	goroutines = 4  // of each producer
)

// program is producers and relays on the nodes of a cluster. Each producer and each relay has a pool
// of its own. A transaction counts a key up, inserts an order with that number, and publishes an
// event of the key with the number. The row lock of the counter makes the number the order of
// commits. Nearly a third of the events have no key.
type program struct {
	Dialect core.Dialect
	// Open opens a pool of plain connections to an address.
	Open func(address string) (*sql.DB, error)
	// Write is how producers write: withSQL or withGORM.
	Write way
	// Producers and Relays are addresses of nodes. A producer that is Hot also relays its own events.
	Producers, Relays []string
	Hot               bool
	// Parts is how many rows of a third table a transaction reads and then inserts. They show
	// transactions of which only a part was committed.
	Parts int
	// Relay is the configuration of every relay. Zero values: short intervals, see start.
	Relay relay.Config
	// Pause is the longest pause of a goroutine between two transactions. Default: 10 ms.
	Pause time.Duration
}

// way opens a producer on a pool of plain connections. The Publisher of cfg is nil unless the producer
// relays.
type way func(d core.Dialect, pool *sql.DB, cfg adapter.Config) (producer, error)

// producer is an outbox and its transactions.
type producer struct {
	Run  func(context.Context) error
	InTx runInTx
}

// runInTx runs fn in a transaction.
type runInTx func(ctx context.Context, fn func(tx transaction) error) error

// transaction is what a producer does in its transaction. Texts have ? for each argument.
type transaction interface {
	Exec(text string, args ...any) error
	// Number returns the first column of the only row, which is a number.
	Number(text string, args ...any) (int64, error)
	Publish(core.Event) error
}

// copyOf is one copy of an event that a relay published. ID is the id of its order.
type copyOf struct {
	ID, Key, Relay string
	N, KeySeq      int64
}

// fate is what a producer was told about its transaction.
type fate int

const (
	committed fate = iota + 1
	rolledBack
	unknown
)

// ledger is a program that runs.
type ledger struct {
	t *testing.T
	program

	writing, relaying        context.Context
	endWriting, endRelaying  context.CancelFunc
	producers, relays        sync.WaitGroup
	Committed, Failed, Ended atomic.Int64 // transactions, transactions, calls of Run that ended by themselves
	byProducer, byRelay      []atomic.Int64
	mu                       sync.Mutex
	copies                   []copyOf
	told                     map[string]fate
	failures                 map[string]int // by text, without its numbers
}

// createTables makes the tables of a program and of the outbox on one node.
func (p program) createTables(t *testing.T, address string) {
	t.Helper()
	pool, err := p.Open(address)
	fixture.NoError(t, err)
	defer pool.Close()
	repo, err := sqloutbox.New(pool, sqloutbox.Config{Dialect: p.Dialect})
	fixture.NoError(t, err)
	fixture.NoError(t, repo.Migrate(t.Context()))
	for _, text := range []string{
		"CREATE TABLE counter (k VARCHAR(20) NOT NULL PRIMARY KEY, n BIGINT NOT NULL)",
		"CREATE TABLE orders (id VARCHAR(40) NOT NULL PRIMARY KEY, k VARCHAR(20) NOT NULL, n BIGINT NOT NULL)",
		"CREATE TABLE part (id VARCHAR(40) NOT NULL PRIMARY KEY, order_id VARCHAR(40) NOT NULL)",
	} {
		fixture.MustExec(t, pool, text)
	}
	for k := range keys {
		fixture.MustExec(t, pool, fmt.Sprintf("INSERT INTO counter (k, n) VALUES ('key-%d', 0)", k))
	}
}

// start starts the producers and the relays. The tables are there on every node.
func start(t *testing.T, p program) *ledger {
	t.Helper()
	if p.Relay.PollInterval == 0 {
		p.Relay.PollInterval = 200 * time.Millisecond
	}
	if p.Pause == 0 {
		p.Pause = 10 * time.Millisecond
	}
	l := &ledger{t: t, program: p, told: map[string]fate{}, failures: map[string]int{}}
	l.byProducer, l.byRelay = make([]atomic.Int64, len(p.Producers)), make([]atomic.Int64, len(p.Relays))
	l.writing, l.endWriting = context.WithCancel(context.Background())
	l.relaying, l.endRelaying = context.WithCancel(context.Background())
	t.Cleanup(func() {
		l.endWriting()
		l.endRelaying()
		l.producers.Wait()
		l.relays.Wait()
	})
	for i, address := range p.Producers {
		l.produce(i, address)
	}
	for i, address := range p.Relays {
		pool := l.pool(address)
		repo, err := sqloutbox.New(pool, sqloutbox.Config{Dialect: p.Dialect})
		fixture.NoError(t, err)
		cfg := l.config(fmt.Sprintf("relay-%d", i), &l.byRelay[i])
		l.run(func(ctx context.Context) error {
			o, err := core.New(
				core.Config{Repository: repo, Node: cfg.Node, Publisher: cfg.Publisher, Relay: cfg.Relay},
			)
			if err != nil {
				return err
			}
			return o.Run(ctx)
		})
	}
	return l
}

func (l *ledger) pool(address string) *sql.DB {
	l.t.Helper()
	pool, err := l.Open(address)
	fixture.NoError(l.t, err)
	pool.SetMaxOpenConns(12)
	pool.SetMaxIdleConns(12)
	l.t.Cleanup(func() {
		l.endWriting()
		l.endRelaying()
		l.producers.Wait()
		l.relays.Wait()
		_ = pool.Close()
	})
	return pool
}

func (l *ledger) config(node string, count *atomic.Int64) adapter.Config {
	return adapter.Config{Node: node, Publisher: l.publisher(node, count), Relay: l.Relay}
}

// publisher writes down what it gets, after a moment.
func (l *ledger) publisher(node string, count *atomic.Int64) core.Publisher {
	return core.PublisherFunc(func(ctx context.Context, d core.Delivery) error {
		if err := pause(ctx, 2*time.Millisecond); err != nil {
			return err
		}
		n, id, _ := strings.Cut(string(d.Payload), " ")
		c := copyOf{ID: id, Key: d.Key, Relay: node, KeySeq: d.KeySeq}
		c.N, _ = strconv.ParseInt(n, 10, 64)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.copies = append(l.copies, c)
		count.Add(1)
		return nil
	})
}

// run calls Run until the relays shall end. A Run that ends by itself is counted, and started again.
func (l *ledger) run(run func(context.Context) error) {
	l.relays.Go(func() {
		for l.relaying.Err() == nil {
			err := run(l.relaying)
			if l.relaying.Err() == nil {
				l.Ended.Add(1)
				l.failed("Run: ", err)
				_ = pause(l.relaying, time.Second)
			}
		}
	})
}

func (l *ledger) produce(number int, address string) {
	name := fmt.Sprintf("producer-%d", number)
	pool := l.pool(address)
	cfg := adapter.Config{Node: name}
	if l.Hot {
		cfg = l.config(name, &atomic.Int64{})
	}
	p, err := l.Write(l.Dialect, pool, cfg)
	fixture.NoError(l.t, err)
	if l.Hot {
		l.run(p.Run)
	}
	for g := range goroutines {
		l.producers.Go(func() {
			for n := 0; l.writing.Err() == nil; n++ {
				l.transact(fmt.Sprintf("%d-%d-%d", number, g, n), number, p.InTx)
				_ = pause(l.writing, l.Pause)
			}
		})
	}
}

// transact writes one transaction, and writes down what it was told.
func (l *ledger) transact(id string, producer int, inTx runInTx) {
	key := fmt.Sprintf("key-%d", rand.IntN(keys))
	if rand.IntN(10) < 3 {
		key = ""
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err := inTx(ctx, func(tx transaction) error { return l.work(tx, id, key) })
	f := committed
	switch {
	case errors.Is(err, core.ErrCommitUnknown):
		f = unknown
	case err != nil:
		f = rolledBack
	}
	l.mu.Lock()
	l.told[id] = f
	l.mu.Unlock()
	if err != nil {
		l.Failed.Add(1)
		l.failed("", err)
		return
	}
	l.Committed.Add(1)
	l.byProducer[producer].Add(1)
}

func (l *ledger) work(tx transaction, id, key string) error {
	n := int64(0)
	if key != "" {
		if err := tx.Exec("UPDATE counter SET n = n + 1 WHERE k = ?", key); err != nil {
			return err
		}
		var err error
		if n, err = tx.Number("SELECT n FROM counter WHERE k = ?", key); err != nil {
			return err
		}
	}
	if err := tx.Exec("INSERT INTO orders (id, k, n) VALUES (?, ?, ?)", id, key, n); err != nil {
		return err
	}
	e := core.Event{
		Type:      "counted",
		Topic:     "counted",
		Key:       key,
		Unordered: key == "",
		Payload:   fmt.Appendf(nil, "%d %s", n, id),
	}
	if err := tx.Publish(e); err != nil {
		return err
	}
	for i := range l.Parts {
		if _, err := tx.Number("SELECT COUNT(*) FROM part WHERE order_id = ?", id); err != nil {
			return err
		}
		if err := tx.Exec(
			"INSERT INTO part (id, order_id) VALUES (?, ?)",
			fmt.Sprintf("%s-%d", id, i),
			id,
		); err != nil {
			return err
		}
	}
	return nil
}

// failed counts a failure by its text.
func (l *ledger) failed(what string, err error) {
	text := strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, fmt.Sprint(err))
	l.mu.Lock()
	l.failures[what+text[:min(len(text), 160)]]++
	l.mu.Unlock()
}

// AwaitCommits waits until a producer has committed n more transactions.
func (l *ledger) AwaitCommits(producer int, n int64) {
	l.t.Helper()
	l.await(fmt.Sprintf("producer %d commits %d transactions", producer, n), &l.byProducer[producer], n)
}

// AwaitPublished waits until a relay has published n more events.
func (l *ledger) AwaitPublished(relay int, n int64) {
	l.t.Helper()
	l.await(fmt.Sprintf("relay %d publishes %d events", relay, n), &l.byRelay[relay], n)
}

func (l *ledger) await(what string, counted *atomic.Int64, n int64) {
	l.t.Helper()
	until := counted.Load() + n
	deadline := time.Now().Add(2 * time.Minute)
	for counted.Load() < until {
		if time.Now().After(deadline) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.t.Fatalf("waited in vain: %s; failures so far: %v", what, l.failures)
		}
		_ = pause(l.t.Context(), 20*time.Millisecond)
	}
}

func pause(ctx context.Context, most time.Duration) error {
	timer := time.NewTimer(rand.N(most))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
