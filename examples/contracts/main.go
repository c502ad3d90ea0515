// Command contracts shows how an event changes without an outage: a consumer that is one version
// behind waits for its deployment, and then reads all versions as the newest one.
//
//	go run ./examples/contracts # SQLite in memory and a Go channel
//
// Package events has the declarations, docs/events the pages that its test writes, and
// docs/schema-evolution.md the rules.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"modernc.org/sqlite"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/contract"
	coreinbox "github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/inbox/sqlinbox"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/examples/contracts/events"
	"github.com/ormoutbox/ormoutbox/inbox"
	"github.com/ormoutbox/ormoutbox/watermillbridge"
)

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "contracts:", err)
		os.Exit(1)
	}
}

// orderPlacedV3 is what the producer's next release writes: the money has a currency.
type orderPlacedV3 struct {
	OrderID  string `json:"order_id" contract:"aggregate"`
	Amount   int64  `json:"amount"`
	Currency string `json:"currency"`
}

// orderPlaced is the declaration of the next release.
var orderPlaced = contract.Must(contract.Define(contract.Spec[orderPlacedV3]{
	Type: "order.placed", Version: 3, Domain: "sales", Owner: "team orders", Topic: "orders", AggregateType: "order",
	Description: "A customer has placed an order, and has not paid it yet.",
	Example:     orderPlacedV3{OrderID: "order-7", Amount: 4200, Currency: "EUR"},
	Older: []contract.Older{
		contract.From(1, events.OrderPlacedV1{OrderID: "order-7", Total: 42}, events.UpcastOrderPlacedV1),
		contract.From(2, events.OrderPlacedV2{OrderID: "order-7", Cents: 4200},
			func(v2 events.OrderPlacedV2) (orderPlacedV3, error) {
				return orderPlacedV3{OrderID: v2.OrderID, Amount: v2.Cents, Currency: "EUR"}, nil
			}),
	},
}))

// present are the handlers of the consumer as it runs now: it knows up to version 2.
func present(out io.Writer) (*contract.Handlers, error) {
	return contract.NewHandlers(contract.HandlersConfig{},
		events.OrderPlaced.Handle(func(_ context.Context, m contract.Message, order events.OrderPlacedV2) error {
			fmt.Fprintf(out, "received %s: %d cents (version %s)\n", order.OrderID, order.Cents,
				m.Headers[core.HeaderSchemaVersion])
			return nil
		}),
		events.OrderCancelled.Ignore(),
	)
}

// next are the handlers of the consumer's next release.
func next(out io.Writer) (*contract.Handlers, error) {
	return contract.NewHandlers(contract.HandlersConfig{},
		orderPlaced.Handle(func(_ context.Context, m contract.Message, order orderPlacedV3) error {
			fmt.Fprintf(out, "received %s: %d %s (version %s)\n", order.OrderID, order.Amount, order.Currency,
				m.Headers[core.HeaderSchemaVersion])
			return nil
		}),
		events.OrderCancelled.Ignore(),
	)
}

func run(ctx context.Context, out io.Writer) error {
	connector, err := sqlite.NewConnector(
		"file:contracts?mode=memory&cache=shared&_pragma=busy_timeout(10000)&_txlock=immediate")
	if err != nil {
		return err
	}
	db := sql.OpenDB(sqltx.Connector(connector, ""))
	defer db.Close()
	db.SetMaxOpenConns(3) // SQLite: also keeps the relay from watching for commits

	// The consumer: Watermill, the inbox, and the handlers of one version.
	channel := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, watermill.NopLogger{})
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	store, err := sqlinbox.On(sqltx.NewTransactor(db, ""), sqlinbox.Config{AutoCreate: true})
	if err != nil {
		return err
	}
	in, err := coreinbox.New(coreinbox.Config{
		Consumer: "billing", Store: store, MaxAttempts: -1, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	router.AddMiddleware(inbox.Wrap(in, inbox.ReturnDead()))
	var handlers atomic.Pointer[contract.Handlers]
	deploy := func(release func(io.Writer) (*contract.Handlers, error)) error {
		h, err := release(out)
		handlers.Store(h)
		return err
	}
	if err := deploy(present); err != nil {
		return err
	}
	router.AddConsumerHandler("invoice", "orders", channel, func(msg *message.Message) error {
		err := handlers.Load().Handle(msg.Context(), contract.Message{Headers: msg.Metadata, Payload: msg.Payload})
		if errors.Is(err, contract.ErrNewerVersion) { // it waits; in production somebody deploys
			fmt.Fprintln(out, "waits:", contract.ErrNewerVersion)
			fmt.Fprintln(out, "the consumer's next release is deployed")
			return errors.Join(err, deploy(next))
		}
		return err
	})
	consumer := make(chan error, 1)
	go func() { consumer <- router.Run(ctx) }()
	<-router.Running()

	publisher, err := watermillbridge.NewPublisher(channel, watermillbridge.Config{})
	if err != nil {
		return err
	}
	table, err := sqloutbox.New(db, sqloutbox.Config{})
	if err != nil {
		return err
	}
	if err := table.Migrate(ctx); err != nil {
		return err
	}
	outbox, err := core.New(core.Config{Repository: table, Publisher: publisher, Relay: relay.Config{}})
	if err != nil {
		return err
	}
	for _, event := range []core.Event{
		// A producer of last year wrote this one, and a replay brings it again.
		{
			Type: "order.placed", SchemaVersion: 1, Topic: "orders", AggregateType: "order", AggregateID: "order-1",
			Data: events.OrderPlacedV1{OrderID: "order-1", Total: 42},
		},
		events.OrderPlaced.Event(events.OrderPlacedV2{OrderID: "order-2", Cents: 990}),
		orderPlaced.Event(orderPlacedV3{OrderID: "order-3", Amount: 1500, Currency: "SEK"}),
		events.OrderPlaced.Event(events.OrderPlacedV2{OrderID: "order-4", Cents: 100}), // a producer not yet deployed
	} {
		if err := publish(ctx, db, outbox, event); err != nil {
			return err
		}
		if err := outbox.Drain(ctx); err != nil { // one after the other, for the printed lines
			return err
		}
	}

	// An event without what its declaration needs never reaches the table.
	err = publish(ctx, db, outbox, events.OrderPlaced.Event(events.OrderPlacedV2{Cents: 1}))
	fmt.Fprintln(out, "refused:", errors.Is(err, core.ErrInvalidEvent))
	return errors.Join(publisher.Close(ctx), router.Close(), <-consumer)
}

func publish(ctx context.Context, db *sql.DB, outbox *core.Outbox, event core.Event) error {
	return sqltx.NewTransactor(db, "").RunInTx(ctx, func(ctx context.Context, tx core.Tx) error {
		_, err := outbox.Publish(ctx, tx, event)
		return err
	})
}
