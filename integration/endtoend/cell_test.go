package endtoend_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/gormoutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/adapters"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// e2eCell is one database and one broker: two processes of a service that write and relay, and a
// consumer.
type e2eCell struct {
	t        *testing.T
	broker   broker
	topic    string
	pool     *sql.DB // for the test itself
	ledger   ledger
	consumer *consumer
	services []*service

	mu    sync.Mutex
	total producer // sums of all producers
}

type service struct {
	db     *gorm.DB
	plugin *gormoutbox.Outbox
}

func newE2ECell(t *testing.T, db testdb.DB, b broker) *e2eCell {
	t.Helper()
	c := &e2eCell{t: t, broker: b, topic: fixture.UniqueTopic("orders"), pool: db.Open(t)}
	c.consumer = b.consume(t, c.topic)
	for i := range 2 {
		c.services = append(c.services, c.newService(db, i == 0))
	}
	return c
}

func (c *e2eCell) newService(db testdb.DB, first bool) *service {
	c.t.Helper()
	gdb, err := gorm.Open(adapters.GORMDialector(db, db.Open(c.t)),
		&gorm.Config{Logger: logger.Discard, PrepareStmt: !first})
	fixture.NoError(c.t, err)
	s := &service{db: gdb, plugin: gormoutbox.Plugin(gormoutbox.Config{
		AutoCreate: first,
		Publisher:  c.ledger.through(c.broker.publisher(c.t)),
		Relay: relay.Config{
			Workers:   16,
			HotEvents: 32, // so that the poller has work too

			// The timeout is longer than a broker hangs before a test kills it. A publish that times
			// out while others are acknowledged would spend an attempt, and the tests want none.
			PublishTimeout: 30 * time.Second, HotLease: time.Minute, ClaimLease: time.Minute,
			PollInterval: 200 * time.Millisecond, MaxPollInterval: time.Second,
			Breaker: relay.BreakerPolicy{ProbeInterval: 300 * time.Millisecond, MaxProbeInterval: 2 * time.Second},
		},
	})}
	gormoutbox.On(s.plugin, func(_ core.Op, n *e2eNote) []core.Event { return []core.Event{mapNote(c.topic, n)} })
	fixture.NoError(c.t, gdb.Use(s.plugin))
	if first {
		c.createTables(gdb)
	}
	fixture.RunRelay(c.t, s.plugin)
	return s
}

func (c *e2eCell) createTables(db *gorm.DB) {
	c.t.Helper()
	fixture.NoError(c.t, db.AutoMigrate(&e2eOrder{}, &e2eNote{}, &e2eTold{}))
	for id := range int64(e2eOrders) {
		fixture.NoError(c.t, db.Create(&e2eOrder{ID: id + 1}).Error)
	}
}

// produce runs transactions from several goroutines of both services, until the channel is closed.
// Each goroutine runs at least the given number.
func (c *e2eCell) produce(producers, transactions int, until <-chan struct{}) {
	c.t.Helper()
	var wg sync.WaitGroup
	for n := range producers {
		s := c.services[n%len(c.services)]
		p := &producer{
			db: s.db, plugin: s.plugin, topic: c.topic,
			random: rand.New(rand.NewPCG(rand.Uint64(), uint64(n))),
		}
		wg.Go(func() {
			for done := 0; ; done++ {
				if done >= transactions {
					select {
					case <-until:
						c.add(p)
						return
					default:
						if until == nil {
							c.add(p)
							return
						}
					}
				}
				if err := p.change(context.Background()); err != nil {
					c.t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func (c *e2eCell) add(p *producer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.total.committed += p.committed
	c.total.rolledBack += p.rolledBack
	c.total.savepoints += p.savepoints
	c.total.repeated += p.repeated
}

// outboxRow is a row of outbox_event.
type outboxRow struct {
	told                      e2eTold
	keySeq                    int64
	status, attempts, lost    int
	topic, receipt, errorText string
}

func (c *e2eCell) outbox() []outboxRow {
	c.t.Helper()
	return fixture.Query(c.t, c.pool,
		`SELECT event_id, event_type, COALESCE(tenant_id, ''), COALESCE(partition_key, ''), aggregate_version,
			COALESCE(headers, 'null'),
		payload, COALESCE(key_seq, 0), status, attempts, lost_claims, topic, COALESCE(receipt, ''),
		COALESCE(last_error, '') FROM outbox_event`,
		func(r *sql.Rows) (o outboxRow, err error) {
			err = r.Scan(&o.told.EventID, &o.told.Type, &o.told.Tenant, &o.told.Key, &o.told.Version, &o.told.Headers,
				&o.told.Payload,
				&o.keySeq, &o.status, &o.attempts, &o.lost, &o.topic, &o.receipt, &o.errorText)
			o.told.Ordered = o.keySeq != 0
			return o, err
		})
}

func (c *e2eCell) told() map[string]e2eTold {
	c.t.Helper()
	all := map[string]e2eTold{}
	for _, told := range fixture.Query(c.t, c.pool, `SELECT event_id, type, tenant, `+c.quoted("key")+
		`, ordered, version, headers, payload FROM e2e_tolds`,
		func(r *sql.Rows) (x e2eTold, err error) {
			return x, r.Scan(&x.EventID, &x.Type, &x.Tenant, &x.Key, &x.Ordered, &x.Version, &x.Headers, &x.Payload)
		}) {
		all[told.EventID] = told
	}
	return all
}

func (c *e2eCell) quoted(name string) string {
	if c.services[0].db.Name() == "mysql" {
		return "`" + name + "`"
	}
	return `"` + name + `"`
}

// finish waits until every row is done and the consumer has received all messages of the broker.
func (c *e2eCell) finish(limit time.Duration) {
	c.t.Helper()
	deadline := time.Now().Add(limit)
	var state string
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for ; ; <-tick.C {
		if time.Now().After(deadline) {
			c.t.Fatalf("not finished within %s: %s; errors of publishes: %v", limit, state, c.ledger.errors())
		}
		open := c.count("SELECT COUNT(*) FROM outbox_event WHERE status <> 1")
		rows := c.count("SELECT COUNT(*) FROM outbox_event")
		state = fmt.Sprintf("%d of %d rows open, %d arrived", open, rows, c.consumer.distinct())
		if open > 0 || c.consumer.distinct() < rows {
			continue
		}
		left, err := c.broker.left(c.t, c.topic, c.consumer)
		state += fmt.Sprintf(", %d left at the broker (%v)", left, err)
		if err == nil && left == 0 {
			return
		}
	}
}

func (c *e2eCell) count(text string) int {
	c.t.Helper()
	return fixture.Query(c.t, c.pool, text, func(r *sql.Rows) (n int, err error) { return n, r.Scan(&n) })[0]
}

func (l *ledger) errors() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.first)
}

func headersOf(t *testing.T, text string) map[string]string {
	t.Helper()
	var h map[string]string
	if err := json.Unmarshal([]byte(text), &h); err != nil {
		t.Fatalf("headers %q: %v", text, err)
	}
	return h
}
