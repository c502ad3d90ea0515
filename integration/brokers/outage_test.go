package brokers_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/topics"
	"github.com/ormoutbox/ormoutbox/watermillbridge/amqpbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/httpbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/natsbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/redisbridge"
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
	if err != nil {
		t.Fatal(err)
	}
	o.ob = ob
	relayUntilEnd(t, ob)
	return o
}

// relayUntilEnd runs the relay until the test ends.
func relayUntilEnd(t *testing.T, ob *core.Outbox) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- ob.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

func (o *outage) publish(events ...core.Event) {
	o.t.Helper()
	err := o.repo.Transactor().RunInTx(o.t.Context(), func(ctx context.Context, tx core.Tx) error {
		_, err := o.ob.Publish(ctx, tx, events...)
		return err
	})
	if err != nil {
		o.t.Fatal(err)
	}
}

// awaitFailures waits until so many publishes failed.
func (o *outage) awaitFailures(n int) {
	o.t.Helper()
	limit := time.After(2 * time.Minute)
	for range n {
		select {
		case <-o.failures:
		case <-limit:
			o.t.Fatalf("fewer than %d publishes failed", n)
		}
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

// eager spends its attempts at once. So a test notices a refusal that wrongly spends an attempt.
var eager = core.RetryPolicy{BaseDelay: time.Millisecond, MaxDelay: 10 * time.Millisecond, MaxAttempts: 3}

// A relay that starts before the first consumer waits for it.
func TestAMQPRelayBeforeFirstConsumer(t *testing.T) {
	t.Parallel()
	topic := topics.Rabbit(t)
	o := newOutage(t, core.Config{
		Publisher: topics.RabbitPublisher(t, amqpbridge.Config{AMQP: amqpbridge.QueueConfig(topics.RabbitURI(t))}),
		Retry:     eager,
	})
	for range 10 {
		o.publish(core.Event{Type: topic, Key: "k"}, core.Event{Type: topic})
	}
	o.awaitFailures(4)
	fixture.Await(t, "the backlog tells how old the 20 events are that wait", func() bool {
		backlog, err := o.ob.Backlog(t.Context())
		return err == nil && backlog.Pending == 20 && backlog.Dead == 0 && backlog.OldestAge > time.Second
	})
	if _, err := rabbitChannel(t).QueueDeclare(topic, true, false, false, false, nil); err != nil {
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
	if err := publishWithin(t, p, brokerDelivery(t, topic, ""), time.Minute); err != nil { // which fills it
		t.Fatal(err)
	}
	o := newOutage(t, core.Config{Publisher: p, Retry: eager})
	o.publish(core.Event{Type: topic, Key: "k"})
	o.awaitFailures(8)
	if _, _, err := rabbitChannel(t).Get(topic, true); err != nil {
		t.Fatal(err)
	}
	o.wantStatus(outboxtest.StatusDone, "the event leaves once there is room")
}

// A broker comes back after an outage that was long compared with all pauses. The first event
// leaves within five seconds, plus an allowance for a loaded machine.
func TestBrokerIsBack(t *testing.T) {
	t.Parallel()
	topic := "back-" + core.NewEventID()
	for name, start := range map[string]func(t *testing.T) (killable, core.Publisher){
		"rabbitmq": func(t *testing.T) (killable, core.Publisher) {
			server := fixture.StartPrivate(t, "rabbitmq")
			return server, topics.RabbitPublisher(t, amqpbridge.Config{
				AMQP: amqpbridge.QueueConfig(server.Address), DeclareQueues: true,
			})
		},
		"nats": func(t *testing.T) (killable, core.Publisher) {
			server := fixture.StartPrivate(t, "nats")
			topics.NATSStream(t, server.Address, topic, nil)
			return server, topics.NATSPublisher(t, natsbridge.Config{URL: server.Address})
		},
		"redis": func(t *testing.T) (killable, core.Publisher) {
			server := fixture.StartPrivate(t, "redis")
			return server, topics.RedisPublisher(t, server.Address, redisbridge.Config{})
		},
		"webhook": func(t *testing.T) (killable, core.Publisher) {
			server := &webhookServer{}
			server.Up(t)
			p, err := httpbridge.NewPublisher(httpbridge.Config{
				Endpoints: map[string]httpbridge.Endpoint{topic: {URL: "http://" + server.address}}, AllowHTTP: true,
				AllowAddresses: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
			})
			if err != nil {
				t.Fatal(err)
			}
			return server, p
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, p := start(t)
			o := newOutage(t, core.Config{Publisher: p, Retry: eager})
			o.publish(core.Event{Type: topic, Key: "k"})
			o.wantStatus(outboxtest.StatusDone, "the first event leaves")
			server.Kill(t)
			for range 3 {
				o.publish(core.Event{Type: topic, Key: "k"})
			}
			failures := 6
			if name == "rabbitmq" { // one broker shows that the pauses of the relay stay short
				failures = 12 // some 20 s
			}
			o.awaitFailures(failures)
			server.Up(t)
			o.wantStatus(outboxtest.StatusDone, "events leave once the broker is back")
		})
	}
}

type killable interface {
	Kill(t *testing.T)
	Up(t *testing.T)
}

// webhookServer is a receiver of webhooks that is on the same port after each start.
type webhookServer struct {
	address string
	server  *httptest.Server
}

func (w *webhookServer) Up(t *testing.T) {
	t.Helper()
	address := w.address
	if address == "" {
		address = "127.0.0.1:0"
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	w.address = l.Addr().String()
	w.server = &httptest.Server{Listener: l, Config: &http.Server{
		Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
	}}
	w.server.Start()
	t.Cleanup(w.server.Close)
}

func (w *webhookServer) Kill(t *testing.T) {
	t.Helper()
	w.server.CloseClientConnections()
	w.server.Close()
}

// After a database was away, publishing goes on within two seconds, plus an allowance for a loaded
// machine.
func TestDatabaseIsBack(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"postgres", "mariadb"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, db := fixture.StartPrivateDatabase(t, name)
			pool := db.Open(t)
			repo, err := sqloutbox.New(pool, sqloutbox.Config{Dialect: db.Dialect})
			if err != nil {
				t.Fatal(err)
			}
			if err := repo.Migrate(t.Context()); err != nil {
				t.Fatal(err)
			}
			pub := &outboxtest.Publisher{}
			failed := make(chan struct{}, 1000)
			relay, err := core.New(core.Config{
				Repository: repo, Publisher: pub,
				Observer: &core.Observer{Claimed: func(i core.ClaimInfo) {
					if i.Err != nil {
						select {
						case failed <- struct{}{}:
						default:
						}
					}
				}},
			})
			if err != nil {
				t.Fatal(err)
			}
			relayUntilEnd(t, relay)
			producer, err := core.New(core.Config{Repository: repo}) // without a relay: its rows wait for the poller
			if err != nil {
				t.Fatal(err)
			}
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
			if err := write(); err != nil {
				t.Fatal(err)
			}
			fixture.Await(t, "the first event", func() bool { return len(pub.Accepted()) == 1 })
			server.Kill(t)
			for range 8 * 4 { // pauses that only double would be 25 s long by then
				select {
				case <-failed:
				case <-time.After(30 * time.Second):
					t.Fatal("the relay does not try")
				}
			}
			server.Up(t)
			if err := write(); err != nil {
				if err = write(); err != nil { // a connection from before
					t.Fatal(err)
				}
			}
			fixture.AwaitIn(t, 20*time.Second, "events leave once the database is back",
				func() bool { return len(pub.Accepted()) == 2 })
		})
	}
}
