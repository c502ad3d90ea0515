// Command inbox is a consumer that credits accounts, on four libraries. Every payment is delivered
// three times. One of them fails half-way at first, and one message is not a payment at all. Each
// account is credited once.
//
//	go run ./examples/inbox
//
// Compare sql.go, gorm.go, bun.go and ent.go: only the Transactor and the handler's own statements
// differ.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox/sqlinbox"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/inbox"
	"github.com/ormoutbox/ormoutbox/watermillbridge"
)

func main() {
	dir, err := os.MkdirTemp("", "outbox-inbox-")
	if err == nil {
		for _, name := range []string{"sql", "gorm", "bun", "ent"} {
			err = errors.Join(err, run(context.Background(), os.Stdout, name, dir))
		}
		err = errors.Join(err, os.RemoveAll(dir))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "inbox:", err)
		os.Exit(1)
	}
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

func run(ctx context.Context, out io.Writer, name, dir string) (err error) {
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

	channel := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, watermill.NopLogger{})
	defer func() { err = errors.Join(err, channel.Close()) }()
	var credited atomic.Int64
	outbox, err := core.New(core.Config{
		Repository: repo,
		Publisher: core.PublisherFunc(func(context.Context, core.Delivery) error {
			credited.Add(1) // the broker, for this example; several workers call it
			return nil
		}),
	})
	if err != nil {
		return err
	}
	produced, err := watermillbridge.NewOutboxPublisher(outbox, watermillbridge.OutboxConfig{})
	if err != nil {
		return err
	}
	in, err := inbox.New(inbox.Config{
		Consumer: "bank", Transactor: b.Transactor(), Store: store,
		Publisher: produced,
	})
	if err != nil {
		return err
	}

	poisoned := &poisonQueue{}
	router, err := newRouter(in, b, channel, poisoned)
	if err != nil {
		return err
	}
	routed := make(chan error, 1)
	go func() { routed <- router.Run(ctx) }()
	<-router.Running()
	err = deliver(channel)
	err = errors.Join(err, router.Close(), <-routed, outbox.Drain(ctx))

	fmt.Fprintf(out, "%s: ", name)
	for _, account := range []string{"ada", "bob"} {
		var cents int
		err = errors.Join(err, pool.QueryRowContext(ctx, "SELECT cents FROM accounts WHERE id = ?",
			account).Scan(&cents))
		fmt.Fprintf(out, "%s has %d, ", account, cents)
	}
	parked, listErr := in.ListDead(ctx, inbox.DeadQuery{})
	fmt.Fprintf(out, "%d events of credits, %d parked, %d in the poison queue\n", credited.Load(), len(parked),
		poisoned.messages)
	return errors.Join(err, listErr)
}

// newRouter wires Poison(Retry(Inbox(handler))).
func newRouter(in *inbox.Inbox, b bank, channel *gochannel.GoChannel,
	poisoned message.Publisher,
) (*message.Router, error) {
	poison, err := middleware.PoisonQueueWithFilter(poisoned, "payments_poison", inbox.Final)
	if err != nil {
		return nil, err
	}
	retry := middleware.Retry{
		MaxRetries: 3, InitialInterval: 10 * time.Millisecond, Multiplier: 2, ResetContextOnRetry: true,
		ShouldRetry: func(p middleware.RetryParams) bool { return !inbox.Final(p.Err) },
	}
	chain, err := inbox.Chain(inbox.ChainConfig{Poison: poison, Retry: retry.Middleware, Inbox: in})
	if err != nil {
		return nil, err
	}
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		return nil, err
	}
	router.AddMiddleware(chain)
	failed := false
	// The Router's own publisher gets no messages: those that the handler returns go to the outbox,
	// in its transaction.
	router.AddHandler("credit", "payments", channel, "credits", channel,
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

// deliver sends every message three times, as a broker may.
func deliver(to message.Publisher) error {
	for range 3 {
		for id, payload := range []string{
			`{"account":"ada","cents":4200}`, `{"account":"bob","cents":100}`,
			`not a payment`,
		} {
			msg := message.NewMessage(watermill.NewUUID(), []byte(payload))
			msg.Metadata.Set(core.HeaderEventID, fmt.Sprint("payment-", id)) // the outbox of the sender does so
			if err := to.Publish("payments", msg); err != nil {
				return err
			}
		}
	}
	return nil
}

// poisonQueue counts the messages that cannot be processed.
type poisonQueue struct{ messages int }

func (q *poisonQueue) Publish(_ string, msgs ...*message.Message) error {
	q.messages += len(msgs)
	return nil
}

func (*poisonQueue) Close() error { return nil }
