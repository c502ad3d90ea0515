// Package orders is the order service, on Ent. It consumes QuoteAccepted, captures the order,
// publishes OrderCaptured, and calls the fulfilment system and the mail server.
package orders

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"

	"github.com/ormoutbox/ormoutbox/core"
	coreinbox "github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/inbox/sqlinbox"
	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/once/command"
	"github.com/ormoutbox/ormoutbox/core/once/command/sqlcommand"
	"github.com/ormoutbox/ormoutbox/core/once/sqlonce"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/entoutbox"
	"github.com/ormoutbox/ormoutbox/examples/quote-to-order/broker"
	"github.com/ormoutbox/ormoutbox/examples/quote-to-order/contract"
	"github.com/ormoutbox/ormoutbox/examples/quote-to-order/orders/ent"
	"github.com/ormoutbox/ormoutbox/inbox"
	"github.com/ormoutbox/ormoutbox/pgxoutbox"
	"github.com/ormoutbox/ormoutbox/promoutbox"
)

// Names of the consumer and its handlers in the table of the inbox. Other names would process
// everything again.
const (
	Consumer          = "order-service"
	HandlerQuotes     = "quote-events"
	HandlerFulfilment = "fulfilment-events"
	Poison            = "order-service.poison" // the topic of messages that cannot be processed
)

// lease is how long the events and effects that a process worked on wait when it was killed. It
// must be longer than a call may take (5 s).
const lease = 10 * time.Second

// Config is what the service needs to run.
type Config struct {
	DSN      string // address of PostgreSQL
	Kafka    broker.Kafka
	Listener net.Listener // listener of the API
	Outside  string       // address of the fulfilment system and the mail server
	// SchemaVersion is the newest version of QuoteAccepted that this release understands.
	SchemaVersion int
	// Committed, if it is set, is called between the commit of a message and the commit of its
	// offset, with the name of the handler. The story kills the process there.
	Committed func(handler string)
	Logger    *slog.Logger
}

// Run is the service, until ctx ends. It may be killed at any point.
func Run(ctx context.Context, cfg Config) (err error) {
	conn, err := pgx.ParseConfig(cfg.DSN)
	if err != nil {
		return err
	}
	pool := stdlib.OpenDB(*conn)
	defer pool.Close()
	pool.SetMaxOpenConns(20)
	pool.SetMaxIdleConns(20)
	registry := prometheus.NewRegistry()
	metrics := promoutbox.New(promoutbox.Config{})
	registry.MustRegister(metrics)
	latency := newLatency(registry)

	// The relay has two destinations: effects go to the worker in this process, and all other
	// events to Kafka.
	publisher, err := cfg.Kafka.Publisher()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, publisher.Close(context.WithoutCancel(ctx))) }()
	store, err := sqlcommand.New(pool, sqlcommand.Config{})
	if err != nil {
		return err
	}
	worker, err := command.NewWorker(command.WorkerConfig{
		Store: store, Handlers: outside{cfg.Outside, latency}.handlers(), Lease: lease,
		Observer: metrics.Effects(), Logger: cfg.Logger,
	})
	if err != nil {
		return err
	}
	destinations := core.NewRouter()
	worker.AddTo(destinations)
	destinations.HandleOther(publisher)
	topic := cfg.Kafka.Topic(contract.OrderEvents)
	outbox, err := entoutbox.New(entsql.OpenDB(dialect.Postgres, pool), entoutbox.Config{
		Publisher: destinations,
		// Both events have one topic, because order is kept within a topic.
		Routes:     map[string][]string{"OrderCaptured": {topic}, "OrderCompleted": {topic}},
		AutoCreate: true,
		Relay: relay.Config{
			ClaimLease: lease,
			Breaker: relay.BreakerPolicy{
				MaxProbeInterval: time.Second,
			}, // a system that is down is tried every second
		},
		Wake:   core.WakePolicy{Listen: pgxoutbox.Listen(conn, sqloutbox.WakeChannel(""))},
		Logger: cfg.Logger, Observer: metrics.Outbox(),
	})
	if err != nil {
		return err
	}
	client := ent.NewClient(ent.Driver(outbox.Driver()))
	commands, queue, err := prepare(ctx, pool, client, outbox, store)
	if err != nil {
		return err
	}
	service := &Service{client: client, outbox: outbox, commands: commands, effects: queue, latency: latency}

	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	if cfg.Committed != nil {
		router.AddMiddleware(afterCommit(cfg.Committed))
	}
	seen, err := sqlinbox.On(entoutbox.Transactor(client.Tx), sqlinbox.Config{AutoCreate: true})
	if err != nil {
		return err
	}
	in, err := coreinbox.New(coreinbox.Config{
		Consumer: Consumer, Store: seen, Logger: cfg.Logger, Observer: metrics.Inbox(),
		Retention: 30 * 24 * time.Hour, BrokerRetention: 7 * 24 * time.Hour,
	})
	if err != nil {
		return err
	}
	parked := publisher.MessagePublisher(0)
	router.AddMiddleware(inbox.Wrap(in, inbox.Poison(parked, cfg.Kafka.Topic(Poison))))
	for name, h := range map[string]struct {
		topic string
		fn    message.NoPublishHandlerFunc
	}{
		HandlerQuotes:     {contract.QuoteEvents, service.quoteEvent(cfg.SchemaVersion)},
		HandlerFulfilment: {contract.FulfilmentEvents, service.fulfilmentEvent},
	} {
		subscriber, err := cfg.Kafka.Subscriber(Consumer + "." + name) // a group for each topic
		if err != nil {
			return err
		}
		router.AddConsumerHandler(name, cfg.Kafka.Topic(h.topic), subscriber, h.fn)
	}

	api := http.NewServeMux()
	api.HandleFunc("POST /commands/capture-order", service.captureOrder)
	api.HandleFunc("POST /release", releaser{in, cfg.Kafka, parked}.release)
	api.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	metrics.Watch(outbox)
	metrics.WatchInbox(in.Backlog)
	metrics.WatchEffects(queue.Backlog)
	server := &http.Server{Handler: api}
	all, ctx := errgroup.WithContext(ctx)
	all.Go(func() error { return outbox.Run(ctx) })
	all.Go(func() error { return worker.Run(ctx) })
	all.Go(func() error { return queue.Run(ctx) })
	all.Go(func() error { return commands.Runner().Run(ctx) })
	all.Go(func() error { return in.Run(ctx) })
	all.Go(func() error { return router.Run(ctx) })
	all.Go(func() error {
		if err := server.Serve(cfg.Listener); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	all.Go(func() error {
		<-ctx.Done()
		return server.Shutdown(context.WithoutCancel(ctx))
	})
	return all.Wait()
}

// prepare creates the tables. In production apply Ent's versioned migrations, and the files that
// Migrations of each package of the library returns.
func prepare(ctx context.Context, pool *sql.DB, client *ent.Client, outbox *entoutbox.Outbox, effects *sqlcommand.Store,
) (*command.Commands, *command.Queue, error) {
	keys, err := sqlonce.New(pool, sqlonce.Config{})
	if err != nil {
		return nil, nil, err
	}
	if err := errors.Join(client.Schema.Create(ctx), keys.Migrate(ctx), effects.Migrate(ctx)); err != nil {
		return nil, nil, fmt.Errorf("create tables: %w", err)
	}
	commands, err := command.New(once.Config{Store: keys})
	if err != nil {
		return nil, nil, err
	}
	queue, err := command.NewQueue(command.QueueConfig{Store: effects, Outbox: outbox.Outbox()})
	return commands, queue, err
}

// afterCommit is outside of the inbox. When the handler has returned nil, the inbox has committed,
// and the offset has not.
func afterCommit(fn func(handler string)) message.HandlerMiddleware {
	return func(h message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			produced, err := h(msg)
			if err == nil {
				fn(message.HandlerNameFromCtx(msg.Context()))
			}
			return produced, err
		}
	}
}
