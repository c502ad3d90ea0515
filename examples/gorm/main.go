// Command gorm is a small order service on GORM: an order and its events commit together, and a
// relay publishes the events.
//
//	go run ./examples/gorm                                       # SQLite in a temporary folder
//	DATABASE_URL=postgres://user@host/db go run ./examples/gorm  # PostgreSQL; replaces the table example_orders there
//
// Its neighbours ent, bun and sql are the same service on other libraries: compare service.go.
package main

import (
	"context"
	"errors"
	"io"
	"strings"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"gorm.io/driver/postgres"
	"gorm.io/driver/sqlite"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
	_ "modernc.org/sqlite" // driver "sqlite"

	"github.com/ormoutbox/ormoutbox/examples/internal/demo"
	"github.com/ormoutbox/ormoutbox/gormoutbox"
	"github.com/ormoutbox/ormoutbox/watermillbridge"
)

func main() { demo.Main("gorm", run) }

func run(ctx context.Context, out io.Writer, dsn string) error {
	dialector := postgres.Open(dsn)
	if !strings.HasPrefix(dsn, "postgres") {
		dialector = sqlite.Dialector{
			DriverName: "sqlite",
			DSN:        dsn + "?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_txlock=immediate",
		}
	}
	db, err := gorm.Open(dialector, &gorm.Config{Logger: logger.Discard})
	if err != nil {
		return err
	}
	pool, err := db.DB()
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := errors.Join(db.Migrator().DropTable(&Order{}), db.AutoMigrate(&Order{})); err != nil {
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
	outbox := gormoutbox.Plugin(gormoutbox.Config{
		Publisher:  publisher,
		AutoCreate: true, // the outbox tables; in production apply what sqloutbox.Migrations returns
	})
	if err := db.Use(outbox); err != nil {
		return err
	}
	relay, stopRelay := context.WithCancel(ctx)
	relayed := make(chan error, 1)
	go func() { relayed <- outbox.Run(relay) }()

	err = demo.Serve(ctx, out, &Service{db: db})

	consumed := make(chan error, 1)
	go func() { consumed <- demo.Consume(out, messages) }() // after the relay only to keep the printed lines in order
	// wait until all committed events are published; a server need not
	err = errors.Join(err, outbox.Drain(ctx))
	stopRelay()
	return errors.Join(err, <-relayed, publisher.Close(ctx), <-consumed)
}
