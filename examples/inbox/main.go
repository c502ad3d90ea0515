// Command inbox is a consumer that credits accounts, on four libraries, with RabbitMQ as broker.
// Every payment is delivered three times. One of them fails half-way at first, and one message is
// not a payment at all. Each account is credited once.
//
//	docker run --rm -p 5672:5672 rabbitmq:4
//	go run ./examples/inbox
//
// AMQP_URL names another server than amqp://guest:guest@localhost:5672/.
//
// Compare sql.go, gorm.go, bun.go and ent.go: only the Transactor and the handler's own statements
// differ.
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"

	"github.com/ormoutbox/ormoutbox/core"
	coreinbox "github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/inbox/sqlinbox"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/examples/internal/demo"
	"github.com/ormoutbox/ormoutbox/inbox"
	"github.com/ormoutbox/ormoutbox/watermillbridge"
)

func main() {
	if err := runAll(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "inbox:", err)
		os.Exit(1)
	}
}

func runAll(ctx context.Context) (err error) {
	dir, err := os.MkdirTemp("", "outbox-inbox-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	for _, name := range []string{"sql", "gorm", "bun", "ent"} {
		if err := run(ctx, name, dir); err != nil {
			return err
		}
	}
	return nil
}

// Payment is the payload of a message.
type Payment struct {
	Account string `json:"account"`
	Cents   int    `json:"cents"`
}

// bank is how one library credits accounts.
type bank interface {
	// Transactor opens the transactions of the inbox.
	Transactor() core.Transactor
	// Credit adds to an account in the transaction of ctx. It is not idempotent by itself: two
	// calls add twice.
	Credit(ctx context.Context, p Payment) error
}

func run(ctx context.Context, name, dir string) (err error) {
	broker, err := openBroker()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, broker.close(ctx)) }()
	pool, err := openSQLite(filepath.Join(dir, name+".db"))
	if err != nil {
		return err
	}
	defer pool.Close()
	b, err := openBank(name, pool)
	if err != nil {
		return err
	}
	store, err := sqlinbox.New(pool, sqlinbox.Config{Dialect: core.SQLite})
	if err != nil {
		return err
	}
	repo, err := sqloutbox.New(pool, sqloutbox.Config{Dialect: core.SQLite})
	if err != nil {
		return err
	}
	// In production apply what sqlinbox.Migrations and sqloutbox.Migrations return.
	if err := errors.Join(store.Migrate(ctx), repo.Migrate(ctx)); err != nil {
		return err
	}

	outbox, err := core.New(core.Config{Repository: repo, Publisher: broker.publisher, Relay: relay.Config{}})
	if err != nil {
		return err
	}
	produced, err := watermillbridge.NewOutboxPublisher(outbox, watermillbridge.OutboxConfig{})
	if err != nil {
		return err
	}
	in, err := coreinbox.New(coreinbox.Config{Consumer: "bank", Transactor: b.Transactor(), Store: store})
	if err != nil {
		return err
	}

	router, err := newRouter(in, produced, b, broker)
	if err != nil {
		return err
	}
	if err := deliver(broker); err != nil {
		return err
	}
	if err := demo.Run(ctx, router, deliveries); err != nil { // a service: router.Run(ctx)
		return err
	}
	if err := outbox.Drain(ctx); err != nil { // a service has outbox.Run beside the router
		return err
	}
	return report(ctx, name, pool, in, broker)
}

// newRouter wires Poison(Retry(Inbox(handler))).
func newRouter(in *coreinbox.Inbox, outbox message.Publisher, b bank, broker *broker) (*message.Router, error) {
	publisher := broker.publisher.MessagePublisher(0)
	retry := middleware.Retry{
		MaxRetries: 3, InitialInterval: 10 * time.Millisecond, Multiplier: 2, ResetContextOnRetry: true,
		ShouldRetry: func(p middleware.RetryParams) bool { return !coreinbox.Final(p.Err) },
	}
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NewSlogLogger(core.DefaultLogger()))
	if err != nil {
		return nil, err
	}
	router.AddMiddleware(inbox.Wrap(in, inbox.Poison(publisher, broker.poison), inbox.Retry(retry.Middleware),
		inbox.Publisher(outbox)))
	failed := false
	// The Router's own publisher gets no messages: those that the handler returns go to the outbox,
	// in its transaction.
	router.AddHandler("credit", broker.payments, broker.subscriber, broker.credits, publisher,
		func(msg *message.Message) ([]*message.Message, error) {
			var p Payment
			if err := json.Unmarshal(msg.Payload, &p); err != nil {
				return nil, core.Permanent(fmt.Errorf("not a payment: %w", err)) // no attempt will ever work
			}
			if err := b.Credit(msg.Context(), p); err != nil {
				return nil, err
			}
			if p.Account == "bob" && !failed {
				failed = true
				return nil, errors.New("something else went wrong") // the credit is rolled back
			}
			event := message.NewMessage(watermill.NewUUID(), msg.Payload)
			event.Metadata.Set(core.HeaderEventType, "account.credited")
			return message.Messages{event}, nil
		})
	return router, nil
}

// deliveries is how many messages deliver sends.
const deliveries = 9

// deliver sends every message three times, as a broker may.
func deliver(to *broker) error {
	for range 3 {
		for id, payload := range []string{
			`{"account":"ada","cents":4200}`, `{"account":"bob","cents":100}`,
			`not a payment`,
		} {
			msg := message.NewMessage(watermill.NewUUID(), []byte(payload))
			msg.Metadata.Set(core.HeaderEventID, fmt.Sprint("payment-", id)) // the outbox of the sender does so
			if err := to.publisher.MessagePublisher(0).Publish(to.payments, msg); err != nil {
				return err
			}
		}
	}
	return nil
}

// report prints what the accounts hold, and what came into the queues.
func report(ctx context.Context, name string, pool *sql.DB, in *coreinbox.Inbox, broker *broker) error {
	var ada, bob int
	err := pool.QueryRowContext(ctx, "SELECT (SELECT cents FROM accounts WHERE id = 'ada'), "+
		"(SELECT cents FROM accounts WHERE id = 'bob')").Scan(&ada, &bob)
	parked, listErr := in.ListDead(ctx, coreinbox.DeadQuery{})
	credits, creditsErr := broker.drop(broker.credits)
	poisoned, poisonErr := broker.drop(broker.poison)
	if err := errors.Join(err, listErr, creditsErr, poisonErr); err != nil {
		return err
	}
	fmt.Printf("%s: ada has %d, bob has %d, %d events of credits, %d parked, %d in the poison queue\n",
		name, ada, bob, credits, len(parked), poisoned)
	return nil
}
