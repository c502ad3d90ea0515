// Command ent is a small order service on Ent: an order and its events commit together, and a relay
// publishes the events.
//
//	go run ./examples/ent                                       # SQLite in a temporary folder
//	DATABASE_URL=postgres://user@host/db go run ./examples/ent  # PostgreSQL; replaces the table example_orders there
//
// Its neighbours gorm, bun and sql are the same service on other libraries: compare service.go.
package main

import (
	"context"
	"database/sql"
	"errors"
	"io"
	"strings"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	_ "github.com/jackc/pgx/v5/stdlib" // driver "pgx"
	_ "modernc.org/sqlite"             // driver "sqlite"

	"github.com/ormoutbox/ormoutbox/entoutbox"
	"github.com/ormoutbox/ormoutbox/examples/ent/ent"
	"github.com/ormoutbox/ormoutbox/examples/internal/demo"
	"github.com/ormoutbox/ormoutbox/watermillbridge"
)

func main() { demo.Main("ent", run) }

func run(ctx context.Context, out io.Writer, dsn string) error {
	name, driver := dialect.Postgres, "pgx"
	if !strings.HasPrefix(dsn, "postgres") {
		name, driver, dsn = dialect.SQLite, "sqlite",
			dsn+"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=foreign_keys(1)&_txlock=immediate"
	}
	pool, err := sql.Open(driver, dsn)
	if err != nil {
		return err
	}
	defer pool.Close()

	// Any publisher of Watermill would do. A Go channel loses messages without a subscriber, so the
	// subscription begins before the relay and ends after it.
	channel := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, watermill.NopLogger{})
	messages, err := channel.Subscribe(context.WithoutCancel(ctx), "order")
	if err != nil {
		return err
	}
	publisher, err := watermillbridge.NewPublisher(channel, watermillbridge.Config{})
	if err != nil {
		return err
	}
	outbox, err := entoutbox.New(entsql.OpenDB(name, pool), entoutbox.Config{
		Publisher:  publisher,
		AutoCreate: true, // the outbox tables; in production apply what sqloutbox.Migrations returns
	})
	if err != nil {
		return err
	}
	// The outbox is told how each transaction of this client ends, and its hook writes the events
	// of orders.
	client := ent.NewClient(ent.Driver(outbox.Driver()))
	client.Use(outbox.Hook(entoutbox.OnMutation(placed)))
	if _, err := client.ExecContext(ctx, "DROP TABLE IF EXISTS example_orders"); err != nil {
		return err
	}
	if err := client.Schema.Create(ctx); err != nil {
		return err
	}
	relay, stopRelay := context.WithCancel(ctx)
	relayed := make(chan error, 1)
	go func() { relayed <- outbox.Run(relay) }()

	err = demo.Serve(ctx, out, &Service{client: client, outbox: outbox})

	consumed := make(chan error, 1)
	go func() { consumed <- demo.Consume(out, messages) }() // after the relay only to keep the printed lines in order
	// wait until all committed events are published; a server need not
	err = errors.Join(err, outbox.Drain(ctx))
	stopRelay()
	return errors.Join(err, <-relayed, publisher.Close(ctx), <-consumed)
}
