package inbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/ormoutbox/ormoutbox/core"
	coreinbox "github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/inbox/inboxtest"
	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/inbox"
)

// newInbox returns an inbox in memory. A program uses the Transactor of its ORM and a
// sqlinbox.Store.
func newInbox(set ...func(*coreinbox.Config)) *coreinbox.Inbox {
	cfg := coreinbox.Config{
		Consumer:   "billing",
		Transactor: outboxtest.NewRepository().Transactor(),
		Store:      inboxtest.NewStore(),
		Handler:    "invoice", // in a Router the handler has a name
	}
	for _, fn := range set {
		fn(&cfg)
	}
	in, err := coreinbox.New(cfg)
	check(err)
	return in
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// delivered returns a new copy of the message of an event.
func delivered(id string) *message.Message {
	msg := message.NewMessage(watermill.NewUUID(), []byte(`{"order_id":"7"}`))
	msg.Metadata.Set(core.HeaderEventID, id) // as watermillbridge sends it
	return msg
}

func Example() {
	// With GORM: store, err := sqlinbox.On(gormoutbox.Transactor(db), sqlinbox.Config{AutoCreate:
	// true}), and no Transactor here.
	in, err := coreinbox.New(coreinbox.Config{
		Consumer: "billing", Transactor: outboxtest.NewRepository().Transactor(), Store: inboxtest.NewStore(),
	})
	check(err)

	channel := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, watermill.NopLogger{})
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	check(err)
	router.AddMiddleware(inbox.Wrap(in, inbox.AckDead()))
	router.AddConsumerHandler("invoice", "orders", channel, func(msg *message.Message) error {
		// With GORM, gormoutbox.FromContext(msg.Context()) returns the *gorm.DB.
		_, ok := core.TxFromContext(msg.Context())
		fmt.Println("in a transaction:", ok)
		return nil
	})
	go func() { check(router.Run(context.Background())) }()
	<-router.Running()

	for range 3 { // delivery is at least once
		check(channel.Publish("orders", delivered("0192-7")))
	}
	check(router.Close())
	// Output: in a transaction: true
}

func ExampleWrap() {
	dedup := inbox.Wrap(newInbox(), inbox.AckDead())
	attempts := 0
	handler := dedup(func(msg *message.Message) ([]*message.Message, error) {
		if attempts++; attempts == 1 {
			return nil, errors.New("the printer is on fire") // the transaction is rolled back
		}
		return nil, nil
	})
	for range 3 {
		_, err := handler(delivered("e-1"))
		fmt.Println(attempts, err)
	}
	// Output:
	// 1 the printer is on fire
	// 2 <nil>
	// 2 <nil>
}

func ExampleProcessBatch() {
	in := newInbox()
	msgs := []*message.Message{delivered("a"), delivered("b"), delivered("a")}
	for range 2 {
		errs := inbox.ProcessBatch(context.Background(), in, msgs,
			func(_ context.Context, fresh []*message.Message) error {
				fmt.Println("fresh:", len(fresh)) // one transaction for all of them
				return nil
			})
		for i, err := range errs {
			if err == nil {
				msgs[i].Ack()
			}
		}
	}
	// Output: fresh: 2
}

func ExampleMessageOf() {
	in := newInbox()
	msg := message.NewMessage("", nil)
	msg.Metadata = message.Metadata{"ce_id": "42", "ce_source": "/orders", "tenant_id": "acme"}
	e, err := in.Event(inbox.MessageOf(msg))
	fmt.Printf("%+v %v\n", e.Key, err)
	_, err = in.Event(inbox.MessageOf(message.NewMessage("", nil)))
	fmt.Println(errors.Is(err, coreinbox.ErrInvalidMessage))
	// Output:
	// {Consumer:billing Handler:invoice Tenant:acme EventID:/orders 42} <nil>
	// true
}

// A handler that failed is called once more, and the message of a dead event goes to the poison
// queue.
func ExamplePoison() {
	in := newInbox(func(c *coreinbox.Config) {
		c.MaxAttempts = 2
		c.MinAge = -1 // by default 5 minutes, so that a short disturbance makes no event dead
		c.Logger = slog.New(slog.DiscardHandler)
	})
	queue := gochannel.NewGoChannel(gochannel.Config{Persistent: true}, watermill.NopLogger{})
	dedup := inbox.Wrap(in, inbox.Poison(queue, "billing_poison"), inbox.Retry(twice))
	_, err := dedup(func(*message.Message) ([]*message.Message, error) {
		fmt.Println("attempt")
		return nil, errors.New("does not work")
	})(delivered("e-1"))
	fmt.Println(err)
	poisoned, err := queue.Subscribe(context.Background(), "billing_poison")
	check(err)
	fmt.Println((<-poisoned).Metadata.Get("reason_poisoned"))
	// Output:
	// attempt
	// attempt
	// <nil>
	// inbox: event is dead (attempts: 2): does not work
}

// twice stands for Watermill's middleware.Retry.
func twice(h message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		if out, err := h(msg); err == nil {
			return out, nil
		}
		return h(msg)
	}
}

func ExampleWrap_atLeastOnce() {
	// In a program: store, err := redisonce.New(client, redisonce.Config{}).
	runner, err := once.New(once.Config{Store: outboxtest.NewOnceStore(), TTL: 31 * 24 * time.Hour})
	check(err)
	search, err := coreinbox.NewAtLeastOnce(coreinbox.AtLeastOnceConfig{
		Consumer: "search", Runner: runner, Handler: "index",
	})
	check(err)
	handler := inbox.Wrap(search, inbox.ReturnDead())(func(*message.Message) ([]*message.Message, error) {
		fmt.Println("indexed") // a crash before the mark repeats it, which does not harm an index
		return nil, nil
	})
	for range 2 {
		_, err := handler(delivered("e-1"))
		check(err)
	}
	// Output: indexed
}

func ExampleMiddleware() {
	tx := outboxtest.NewRepository().Transactor() // with GORM: gormoutbox.Transactor(db)
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	check(err)
	router.AddMiddleware(inbox.Middleware(tx, "billing", inbox.CreateTables()))
}

func ExampleSQL() {
	db, err := sql.Open("pgx", "postgres://localhost/shop")
	check(err)
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	check(err)
	router.AddMiddleware(inbox.SQL(db, "billing", inbox.CreateTables()))
}

func ExampleLeased() {
	// For Redis: redisonce.Middleware(client, "mailer").
	channel := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, watermill.NopLogger{})
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	check(err)
	router.AddMiddleware(inbox.Leased(outboxtest.NewOnceStore(), "mailer", inbox.TTL(24*time.Hour)))
	router.AddConsumerHandler("welcome", "signups", channel, func(*message.Message) error {
		fmt.Println("mailed")
		return nil
	})
	go func() { check(router.Run(context.Background())) }()
	<-router.Running()
	for range 3 {
		check(channel.Publish("signups", delivered("e-1")))
	}
	check(router.Close())
	// Output: mailed
}

// A consumer could not handle an event. After the repair, the event is released from the poison
// queue.
func ExampleRelease() {
	ctx, stop := context.WithCancel(context.Background())
	broker := gochannel.NewGoChannel(gochannel.Config{Persistent: true}, watermill.NopLogger{})
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	check(err)
	in := newInbox(func(c *coreinbox.Config) { c.Logger = slog.New(slog.DiscardHandler) })
	router.AddMiddleware(inbox.Wrap(in, inbox.Poison(broker, "billing_poison")))
	var repaired atomic.Bool
	router.AddConsumerHandler("invoice", "orders", broker, func(*message.Message) error {
		if !repaired.Load() {
			return core.Permanent(errors.New("no price for this article"))
		}
		fmt.Println("invoiced")
		return nil
	})
	ended := make(chan error)
	go func() { ended <- router.Run(ctx) }()
	<-router.Running()

	check(broker.Publish("orders", delivered("0192-7")))
	for dead := []coreinbox.DeadEvent(nil); len(dead) == 0; {
		dead, err = in.ListDead(ctx, coreinbox.DeadQuery{})
		check(err)
	}
	repaired.Store(true)
	done, err := inbox.Release(ctx, in, inbox.ReleaseRequest{
		From: broker, Topic: "billing_poison", To: broker, Actor: "ada", Reason: "price list corrected",
		Limit: 1, // one on trial; without a limit, Release ends when the queue is empty
	})
	fmt.Printf("%+v %v\n", done, err)
	stop()
	check(<-ended)
	// Output:
	// invoiced
	// {Sent:1 Processed:1 Done:0 Kept:0 Behind:0 Groups:[]} <nil>
}

// A handler that failed is called once more before the broker delivers the message again.
func ExampleRetry() {
	attempts := 0
	handler := inbox.Wrap(newInbox(), inbox.Retry(twice), inbox.AckDead())(
		func(*message.Message) ([]*message.Message, error) {
			if attempts++; attempts == 1 {
				return nil, errors.New("the printer is on fire") // the transaction is rolled back
			}
			return nil, nil
		})
	_, err := handler(delivered("e-1"))
	fmt.Println(attempts, err)
	// Output: 2 <nil>
}

// outbox stands for a watermillbridge.OutboxPublisher.
type outbox struct{}

func (outbox) Publish(topic string, messages ...*message.Message) error {
	for _, m := range messages {
		_, ok := core.TxFromContext(m.Context())
		fmt.Println(topic, string(m.Payload), "in the transaction of the inbox:", ok)
	}
	return nil
}

func (outbox) Close() error { return nil }

// The messages that a handler returns go to the outbox. They are published if the effect of the
// handler commits.
func ExamplePublisher() {
	channel := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, watermill.NopLogger{})
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	check(err)
	router.AddMiddleware(inbox.Wrap(newInbox(), inbox.Publisher(outbox{}), inbox.AckDead()))
	// The Router has nothing left to publish, so the publisher of AddHandler is not used.
	router.AddHandler("invoice", "orders", channel, "invoices", channel,
		func(*message.Message) ([]*message.Message, error) {
			return message.Messages{message.NewMessage(watermill.NewUUID(), []byte(`{"invoice":"9"}`))}, nil
		})
	go func() { check(router.Run(context.Background())) }()
	<-router.Running()
	for range 2 { // delivery is at least once
		check(channel.Publish("orders", delivered("e-1")))
	}
	check(router.Close())
	// Output: invoices {"invoice":"9"} in the transaction of the inbox: true
}
