// Command sql is a small order service on database/sql: an order and its events commit together,
// and a relay publishes the events.
//
//	go run ./examples/sql                                       # SQLite in a temporary folder
//	DATABASE_URL=postgres://user@host/db go run ./examples/sql  # PostgreSQL; replaces the table example_orders there
//
// Its neighbours gorm, ent and bun are the same service on other libraries: compare service.go.
package main

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"strings"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"modernc.org/sqlite"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/examples/internal/demo"
	"github.com/ormoutbox/ormoutbox/watermillbridge"
)

func main() { demo.Main("sql", run) }

func run(ctx context.Context, out io.Writer, dsn string) error {
	connector, err := connect(dsn)
	if err != nil {
		return err
	}
	db := sql.OpenDB(sqltx.Connector(connector, "")) // the outbox is told how each transaction of this pool ends
	defer db.Close()
	for _, query := range []string{"DROP TABLE IF EXISTS example_orders", createOrders} {
		if _, err := db.ExecContext(ctx, query); err != nil {
			return err
		}
	}

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
	table, err := sqloutbox.New(db, sqloutbox.Config{})
	if err != nil {
		return err
	}
	if err := table.Migrate(ctx); err != nil { // in production apply what sqloutbox.Migrations returns
		return err
	}
	outbox, err := core.New(core.Config{
		Repository: table,
		Publisher:  publisher, Relay: relay.Config{},
	})
	if err != nil {
		return err
	}
	relay, stopRelay := context.WithCancel(ctx)
	relayed := make(chan error, 1)
	go func() { relayed <- outbox.Run(relay) }()

	err = demo.Serve(ctx, out, &Service{db: db, outbox: outbox})

	consumed := make(chan error, 1)
	go func() { consumed <- demo.Consume(out, messages) }() // after the relay only to keep the printed lines in order
	// wait until all committed events are published; a server need not
	err = errors.Join(err, outbox.Drain(ctx))
	stopRelay()
	return errors.Join(err, <-relayed, publisher.Close(ctx), <-consumed)
}

// connect returns the connector that sql.Open would use for the pool.
func connect(dsn string) (driver.Connector, error) {
	if !strings.HasPrefix(dsn, "postgres") {
		return sqlite.NewConnector(dsn + "?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_txlock=immediate")
	}
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	return stdlib.GetConnector(*config), nil
}
