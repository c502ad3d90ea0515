// Command bun is a small order service on Bun: an order and its events commit together, and a relay
// publishes the events.
//
//	go run ./examples/bun                                       # SQLite in a temporary folder
//	DATABASE_URL=postgres://user@host/db go run ./examples/bun  # PostgreSQL; replaces the table example_orders there
//
// Its neighbours gorm, ent and sql are the same service on other libraries: compare service.go.
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
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	"github.com/uptrace/bun/schema"
	"modernc.org/sqlite"

	"github.com/ormoutbox/ormoutbox/bunoutbox"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/examples/internal/demo"
	"github.com/ormoutbox/ormoutbox/watermillbridge"
)

func main() { demo.Main("bun", run) }

func run(ctx context.Context, out io.Writer, dsn string) error {
	connector, dialect, err := connect(dsn)
	if err != nil {
		return err
	}
	// The outbox is told how each transaction of this pool ends. Without the connector it is told
	// only about those of outbox.RunInTx.
	db := bun.NewDB(sql.OpenDB(sqltx.Connector(connector, "")), dialect)
	defer db.Close()
	if err := db.ResetModel(ctx, (*Order)(nil)); err != nil {
		return err
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
	outbox, err := bunoutbox.New(db, bunoutbox.Config{
		Publisher:  publisher,
		AutoCreate: true, // the outbox tables; in production apply what sqloutbox.Migrations returns
	})
	if err != nil {
		return err
	}
	db = outbox.DB() // writes the events that models record, so the service must use it
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

func connect(dsn string) (driver.Connector, schema.Dialect, error) {
	if strings.HasPrefix(dsn, "postgres") {
		config, err := pgx.ParseConfig(dsn)
		if err != nil {
			return nil, nil, err
		}
		return stdlib.GetConnector(*config), pgdialect.New(), nil
	}
	connector, err := sqlite.NewConnector(dsn +
		"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_txlock=immediate")
	return connector, sqlitedialect.New(), err
}
