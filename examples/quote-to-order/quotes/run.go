// Package quotes is the quote service, on GORM. It publishes QuoteAccepted and consumes
// OrderCaptured.
package quotes

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/ormoutbox/ormoutbox/core"
	coreinbox "github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/inbox/sqlinbox"
	"github.com/ormoutbox/ormoutbox/core/once/sqlonce"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/examples/quote-to-order/broker"
	"github.com/ormoutbox/ormoutbox/examples/quote-to-order/contract"
	"github.com/ormoutbox/ormoutbox/gormoutbox"
	"github.com/ormoutbox/ormoutbox/inbox"
	"github.com/ormoutbox/ormoutbox/pgxoutbox"
)

// Names of the consumer in the table of the inbox. Another name would process everything again.
const (
	Consumer = "quote-service"
	Handler  = "order-events"
	Poison   = "quote-service.poison" // the topic of messages that cannot be processed
)

//go:embed schema.sql
var schema string

// Config is what the service needs to run.
type Config struct {
	DSN      string // address of PostgreSQL
	Kafka    broker.Kafka
	Listener net.Listener // listener of the API
	// SchemaVersion of the QuoteAccepted that this release sends.
	SchemaVersion int
	Logger        *slog.Logger
}

// Run is the service, until ctx ends. It may be killed at any point.
func Run(ctx context.Context, cfg Config) (err error) {
	db, err := gorm.Open(postgres.Open(cfg.DSN), &gorm.Config{Logger: logger.Discard})
	if err != nil {
		return err
	}
	pool, err := db.DB()
	if err != nil {
		return err
	}
	defer pool.Close()
	pool.SetMaxOpenConns(20)
	pool.SetMaxIdleConns(20)
	if err := db.Exec(schema).Error; err != nil {
		return fmt.Errorf("create tables: %w", err)
	}
	keys, err := sqlonce.New(pool, sqlonce.Config{})
	if err != nil {
		return err
	}
	if err := keys.Migrate(ctx); err != nil {
		return err
	}

	// The outbox: a plugin of GORM, and a relay that publishes to Kafka.
	publisher, err := cfg.Kafka.Publisher()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, publisher.Close(context.WithoutCancel(ctx))) }()
	listen, err := pgx.ParseConfig(cfg.DSN)
	if err != nil {
		return err
	}
	outbox := gormoutbox.Plugin(gormoutbox.Config{
		Publisher:  publisher,
		Routes:     map[string][]string{"QuoteAccepted": {cfg.Kafka.Topic(contract.QuoteEvents)}},
		AutoCreate: true,
		Wake:       core.WakePolicy{Listen: pgxoutbox.Listen(listen, sqloutbox.WakeChannel(""))}, // for replays
		Logger:     cfg.Logger,
	})
	if err := db.Use(outbox); err != nil {
		return err
	}
	service := &Service{tx: gormoutbox.Transactor(db), version: cfg.SchemaVersion}

	// The inbox: it opens a transaction for each message, and its handler joins it.
	subscriber, err := cfg.Kafka.Subscriber(Consumer)
	if err != nil {
		return err
	}
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	seen, err := sqlinbox.On(gormoutbox.Transactor(db), sqlinbox.Config{AutoCreate: true})
	if err != nil {
		return err
	}
	in, err := coreinbox.New(coreinbox.Config{Consumer: Consumer, Store: seen, Logger: cfg.Logger})
	if err != nil {
		return err
	}
	router.AddMiddleware(inbox.Wrap(in, inbox.Poison(publisher.MessagePublisher(0), cfg.Kafka.Topic(Poison))))
	router.AddConsumerHandler(Handler, cfg.Kafka.Topic(contract.OrderEvents), subscriber, service.orderEvent)

	handler, requests, err := newAPI(db, service, keys)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: handler}
	all, ctx := errgroup.WithContext(ctx)
	all.Go(func() error { return outbox.Run(ctx) })
	all.Go(func() error { return router.Run(ctx) })
	all.Go(func() error { return requests.Run(ctx) })
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
