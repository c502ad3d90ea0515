// Command bun is an idempotent consumer on Bun and NATS JetStream: a payment is delivered three
// times and credited once.
//
//	docker run --rm -p 4222:4222 nats:2 -js
//	go run ./examples/consumer/bun
//
// NATS_URL names another server than nats://localhost:4222.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/sqlitedialect"

	"github.com/ormoutbox/ormoutbox/bunoutbox"
	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/examples/consumer/internal/payments"
	"github.com/ormoutbox/ormoutbox/inbox"
	"github.com/ormoutbox/ormoutbox/watermillbridge/natsbridge"
)

// Account is a row.
type Account struct {
	ID    string `bun:",pk"`
	Cents int
}

// credit handles a payment. Its writes commit together with the id of the event.
func credit(msg *message.Message) error {
	tx, err := bunoutbox.FromContext(msg.Context())
	if err != nil {
		return err
	}
	_, err = tx.NewUpdate().Model(&Account{ID: "ada"}).Set("cents = cents + 100").WherePK().Exec(msg.Context())
	return err
}

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "bun:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	bank, err := payments.OpenBank()
	if err != nil {
		return err
	}
	db := bun.NewDB(bank, sqlitedialect.New())

	url, topic := cmp.Or(os.Getenv("NATS_URL"), nats.DefaultURL), payments.NewTopic()
	conn, err := nats.Connect(url)
	if err != nil {
		return fmt.Errorf("%w: start NATS (docker run --rm -p 4222:4222 nats:2 -js), or set NATS_URL", err)
	}
	defer conn.Close()
	js, err := conn.JetStream()
	if err != nil {
		return err
	}
	if _, err := js.AddStream(&nats.StreamConfig{Name: topic, Subjects: []string{topic}}); err != nil {
		return fmt.Errorf("%w: does the server at NATS_URL run with -js?", err)
	}
	defer func() { err = errors.Join(err, js.DeleteStream(topic)) }()
	if err := send(ctx, url, topic); err != nil {
		return err
	}

	subscriber, err := natsbridge.NewSubscriber(natsbridge.SubscriberConfig{URL: url, Group: "bank"})
	if err != nil {
		return err
	}
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NewSlogLogger(core.DefaultLogger()))
	if err != nil {
		return err
	}
	router.AddMiddleware(inbox.Middleware(bunoutbox.Transactor(db), "bank", inbox.CreateTables()))
	router.AddConsumerHandler("credit", topic, subscriber, credit)
	return payments.Run(ctx, router, bank) // a service: router.Run(ctx)
}

// send is the other service.
func send(ctx context.Context, url, topic string) (err error) {
	publisher, err := natsbridge.NewPublisher(natsbridge.Config{URL: url})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, publisher.Close(ctx)) }()
	return payments.Send(ctx, publisher, topic)
}
