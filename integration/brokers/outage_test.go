package brokers_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/topics"
	"github.com/ormoutbox/ormoutbox/integration/internal/longtest"
	"github.com/ormoutbox/ormoutbox/watermillbridge/amqpbridge"
)

// outage is a relay on a table in memory that publishes to a real broker, and counts its failures.
type outage struct {
	t        *testing.T
	repo     *outboxtest.Repository
	ob       *core.Outbox
	failures chan core.PublishInfo
}

func newOutage(t *testing.T, cfg core.Config) *outage {
	t.Helper()
	o := &outage{t: t, repo: outboxtest.NewRepository(), failures: make(chan core.PublishInfo, 10_000)}
	cfg.Repository = o.repo
	cfg.Observer = &core.Observer{Published: func(i core.PublishInfo) {
		if i.Result != core.PublishDone {
			select {
			case o.failures <- i:
			default:
			}
		}
	}}
	ob, err := core.New(cfg)
	fixture.NoError(t, err)
	o.ob = ob
	fixture.RunRelay(t, ob)
	return o
}

func (o *outage) publish(events ...core.Event) {
	o.t.Helper()
	err := o.repo.Transactor().RunInTx(o.t.Context(), func(ctx context.Context, tx core.Tx) error {
		_, err := o.ob.Publish(ctx, tx, events...)
		return err
	})
	fixture.NoError(o.t, err)
}

// awaitFailures waits until n publishes have failed.
func (o *outage) awaitFailures(n int) {
	o.t.Helper()
	limit := time.After(2 * time.Minute)
	for ; n > 0; n-- {
		select {
		case <-o.failures:
		case <-limit:
			o.t.Fatalf("fewer than %d publishes failed", n)
		}
	}
}

// forgetFailures makes awaitFailures count from now on.
func (o *outage) forgetFailures() {
	for len(o.failures) > 0 {
		<-o.failures
	}
}

func (o *outage) wantStatus(want outboxtest.Status, what string) {
	o.t.Helper()
	fixture.Await(o.t, what, func() bool {
		for _, r := range o.repo.Rows() {
			if r.Status == outboxtest.StatusDead {
				o.t.Fatalf("%s: dead after %d attempts: %s %s", what, r.Attempts, r.ErrorCode, r.Error)
			}
			if r.Status != want {
				return false
			}
		}
		return true
	})
}

// keyed returns an event of each key.
func keyed(topic string, keys int) []core.Event {
	var events []core.Event
	for key := range keys {
		events = append(events, core.Event{
			Type: "counted", Topic: topic, Key: fmt.Sprint("key/", key), Payload: []byte(`{}`),
		})
	}
	return events
}

// nobodyThere is an address where no server is.
const nobodyThere = "127.0.0.1:1"

// eager spends its attempts at once. So a test notices a refusal that wrongly spends an attempt.
var eager = relay.RetryPolicy{BaseDelay: time.Millisecond, MaxDelay: 10 * time.Millisecond, MaxAttempts: 3}

// soon makes the relay notice early that an outage is over.
var soon = relay.BreakerPolicy{ProbeInterval: 200 * time.Millisecond, MaxProbeInterval: time.Second}

// A relay that starts before the first consumer waits for it.
func TestAMQPRelayBeforeFirstConsumer(t *testing.T) {
	t.Parallel()
	topic := topics.Rabbit(t)
	o := newOutage(t, core.Config{
		Publisher: topics.RabbitPublisher(t, amqpbridge.Config{AMQP: amqpbridge.QueueConfig(topics.RabbitURI(t))}),
		Relay:     relay.Config{Retry: eager},
	})
	for range 10 {
		o.publish(core.Event{Type: topic, Key: "k"}, core.Event{Type: topic})
	}
	o.awaitFailures(4)
	fixture.Await(t, "the backlog shows the age of the 20 events that wait", func() bool {
		backlog, err := o.ob.Backlog(t.Context())
		return err == nil && backlog.Pending == 20 && backlog.Dead == 0 && backlog.OldestAge > time.Second
	})
	if _, err := topics.RabbitChannel(t).QueueDeclare(topic, true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	o.wantStatus(outboxtest.StatusDone, "events leave once there is a queue")
}

// A full queue nacks every message. No event becomes dead from that, even if only one key is in
// flight.
func TestAMQPFullQueueWithOneKey(t *testing.T) {
	t.Parallel()
	topic := topics.Rabbit(t)
	cfg := amqpbridge.QueueConfig(topics.RabbitURI(t))
	cfg.Queue.Arguments = amqp091.Table{"x-max-length": 1, "x-overflow": "reject-publish"}
	p := topics.RabbitPublisher(t, amqpbridge.Config{AMQP: cfg, DeclareQueues: true})
	if err := publishWithin(t, p, brokerDelivery(t, topic, ""), time.Minute); err != nil { // fills the queue
		t.Fatal(err)
	}
	o := newOutage(t, core.Config{Publisher: p, Relay: relay.Config{Retry: eager, Breaker: soon}})
	o.publish(core.Event{Type: topic, Key: "k"})
	o.awaitFailures(4) // after 1, 2 and 4 s
	if _, _, err := topics.RabbitChannel(t).Get(topic, true); err != nil {
		t.Fatal(err)
	}
	o.wantStatus(outboxtest.StatusDone, "the event leaves once there is room")
}

// failedPolls counts the polls of which a log says that they failed.
type failedPolls struct{ atomic.Int32 }

func (f *failedPolls) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte("cannot poll")) {
		f.Add(1)
	}
	return len(line), nil
}

// After a database was away, publishing goes on. Core's TestDatabaseIsBack measures how soon, on a
// fake clock.
func TestKilledDatabaseIsBack(t *testing.T) {
	longtest.Mark(t)
	t.Parallel()
	for _, name := range []string{"postgres", "mariadb"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, db := fixture.StartPrivateDatabase(t, name)
			pool := db.Open(t)
			repo := fixture.NewRepository(t, pool, sqloutbox.Config{Dialect: db.Dialect})
			pub := &outboxtest.Publisher{}
			var failed failedPolls
			relay, err := core.New(core.Config{
				Repository: repo, Publisher: pub, Relay: relay.Config{},
				Logger: slog.New(slog.NewTextHandler(&failed, nil)),
			})
			fixture.NoError(t, err)
			fixture.RunRelay(t, relay)
			producer, err := core.New(core.Config{Repository: repo}) // without a relay: its rows wait for the poller
			fixture.NoError(t, err)
			write := func() error {
				tx, err := sqltx.Begin(t.Context(), pool, nil, db.Dialect)
				if err != nil {
					return err
				}
				defer tx.Rollback() // does nothing after Commit
				if _, err := producer.Publish(t.Context(), tx, core.Event{Type: "t"}); err != nil {
					return err
				}
				return tx.Commit()
			}
			fixture.NoError(t, write())
			fixture.Await(t, "the first event", func() bool { return len(pub.Accepted()) == 1 })
			server.Kill(t)
			fixture.Await(t, "the relay tries in vain", func() bool { return failed.Load() >= 8 })
			server.Up(t)
			if err := write(); err != nil {
				if err = write(); err != nil { // the first try may have got a connection from before the kill
					t.Fatal(err)
				}
			}
			fixture.Await(t, "events leave once the database is back",
				func() bool { return len(pub.Accepted()) == 2 })
		})
	}
}
