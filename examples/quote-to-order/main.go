// Command quote-to-order is two services and the story of what happens to them. The quote service
// (GORM) and the order service (Ent) have a schema of PostgreSQL each, and speak through Kafka.
//
//	go run ./examples/quote-to-order          # the story, in twelve steps; make quote-to-order brings the servers
//	go run ./examples/quote-to-order -pause   # waits after each step, so that you can look into the tables
//	go run ./examples/quote-to-order quotes   # the quote service alone, on ADDR
//	go run ./examples/quote-to-order orders   # the order service alone, on ADDR
//
// DATABASE_URL and KAFKA_BROKERS name the servers. Defaults: postgres://localhost:5432/postgres and
// localhost:9092. The story replaces the schemas example_quotes and example_orders, and leaves them
// there. Its topics have a prefix of their own (TOPIC_PREFIX), and are deleted at the end.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	_ "github.com/jackc/pgx/v5/stdlib" // driver "pgx"

	"github.com/ormoutbox/ormoutbox/examples/quote-to-order/broker"
	"github.com/ormoutbox/ormoutbox/examples/quote-to-order/contract"
	"github.com/ormoutbox/ormoutbox/examples/quote-to-order/orders"
	"github.com/ormoutbox/ormoutbox/examples/quote-to-order/quotes"
)

// Schemas of the services.
const (
	quotesSchema = "example_quotes"
	ordersSchema = "example_orders"
)

var topics = []string{
	contract.QuoteEvents, contract.OrderEvents, contract.FulfilmentEvents, quotes.Poison, orders.Poison,
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "quote-to-order:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("quote-to-order", flag.ContinueOnError)
	pause := flags.Bool("pause", false, "wait for a line on standard input after each step of the story")
	if err := flags.Parse(args); err != nil {
		return err
	}
	kafka := broker.Kafka{
		Brokers: strings.Split(cmp.Or(os.Getenv("KAFKA_BROKERS"), "localhost:9092"), ","),
		Prefix:  os.Getenv("TOPIC_PREFIX"), Instance: os.Getenv("INSTANCE"),
	}
	database := cmp.Or(os.Getenv("DATABASE_URL"), "postgres://localhost:5432/postgres")
	switch {
	case flags.NArg() == 0:
		return tell(ctx, database, kafka, *pause)
	case flags.Arg(0) == "quotes":
		return serve(ctx, kafka, func(ctx context.Context, l net.Listener, version int, log *slog.Logger) error {
			dsn, err := schemaOf(ctx, database, quotesSchema)
			if err != nil {
				return err
			}
			return quotes.Run(ctx, quotes.Config{
				DSN: dsn, Kafka: kafka, Listener: l, SchemaVersion: version, Logger: log,
			})
		})
	case flags.Arg(0) == "orders":
		return serve(ctx, kafka, func(ctx context.Context, l net.Listener, version int, log *slog.Logger) error {
			dsn, err := schemaOf(ctx, database, ordersSchema)
			if err != nil {
				return err
			}
			cfg := orders.Config{
				DSN: dsn, Kafka: kafka, Listener: l, SchemaVersion: version, Logger: log,
				Outside: cmp.Or(os.Getenv("OUTSIDE_URL"), "http://localhost:8025"),
			}
			if os.Getenv(holdVariable) != "" {
				cfg.Committed = hold
			}
			return orders.Run(ctx, cfg)
		})
	}
	return fmt.Errorf("%q: quotes or orders, or nothing for the story", flags.Arg(0))
}

// serve runs a service until ctx ends.
func serve(ctx context.Context, kafka broker.Kafka,
	service func(ctx context.Context, l net.Listener, version int, log *slog.Logger) error,
) error {
	version, err := strconv.Atoi(cmp.Or(os.Getenv("SCHEMA_VERSION"), "1"))
	if err != nil {
		return fmt.Errorf("SCHEMA_VERSION: %w", err)
	}
	if err := kafka.CreateTopics(topics...); err != nil {
		return fmt.Errorf("create topics: %w", err)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if os.Getenv(childVariable) != "" {
		go endWithParent(stop)
	}
	listener, err := net.Listen("tcp", cmp.Or(os.Getenv("ADDR"), "127.0.0.1:0"))
	if err != nil {
		return err
	}
	fmt.Println(sayListening, listener.Addr())
	return service(ctx, listener, version, slog.New(slog.NewTextHandler(os.Stderr, nil)))
}

// schemaOf creates a schema, and returns the DSN whose connections use it. So each service has its
// own tables, and its own outbox and inbox.
func schemaOf(ctx context.Context, database, schema string) (dsn string, err error) {
	u, err := url.Parse(database)
	if err != nil || u.Scheme == "" {
		return "", errors.Join(fmt.Errorf("DATABASE_URL %q is no address such as postgres://host/db", database), err)
	}
	db, err := openPool(database)
	if err != nil {
		return "", err
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, "CREATE SCHEMA IF NOT EXISTS "+schema); err != nil {
		return "", err
	}
	q := u.Query()
	q.Set("search_path", schema)
	u.RawQuery = q.Encode()
	return u.String(), nil
}
