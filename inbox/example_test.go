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
	"github.com/ormoutbox/ormoutbox/core/inbox/inboxtest"
	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/inbox"
)

// newInbox returns an inbox in memory. A program uses the Transactor of its ORM and a
// sqlinbox.Store.
func newInbox(set ...func(*inbox.Config)) *inbox.Inbox {
	cfg := inbox.Config{
		Consumer:   "billing",
		Transactor: outboxtest.NewRepository().Transactor(),
		Store:      inboxtest.NewStore(),
		Handler:    func(*message.Message) string { return "invoice" }, // in a Router the handler has a name
	}
	for _, fn := range set {
		fn(&cfg)
	}
	in, err := inbox.New(cfg)
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
	// With GORM: Transactor: gormoutbox.Transactor(db), and Store: store of
	// store, err := sqlinbox.New(pool, sqlinbox.Config{}).
	in, err := inbox.New(inbox.Config{
		Consumer: "billing", Transactor: outboxtest.NewRepository().Transactor(), Store: inboxtest.NewStore(),
	})
	check(err)

	channel := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, watermill.NopLogger{})
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	check(err)
	router.AddMiddleware(in.Middleware)
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

func ExampleInbox_Middleware() {
	in := newInbox()
	attempts := 0
	handler := in.Middleware(func(msg *message.Message) ([]*message.Message, error) {
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

func ExampleInbox_ProcessBatch() {
	in := newInbox()
	msgs := []*message.Message{delivered("a"), delivered("b"), delivered("a")}
	for range 2 {
		errs := in.ProcessBatch(context.Background(), msgs, func(_ context.Context, fresh []*message.Message) error {
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

func ExampleInbox_Event() {
	in := newInbox()
	msg := message.NewMessage("", nil)
	msg.Metadata = message.Metadata{"ce_id": "42", "ce_source": "/orders", "tenant_id": "acme"}
	e, err := in.Event(msg)
	fmt.Printf("%+v %v\n", e.Key, err)
	_, err = in.Event(message.NewMessage("", nil))
	fmt.Println(errors.Is(err, inbox.ErrInvalidMessage))
	// Output:
	// {Consumer:billing Handler:invoice Tenant:acme EventID:/orders 42} <nil>
	// true
}

func ExampleInbox_Redrive() {
	in := newInbox()
	ctx := context.Background()
	_, err := in.Middleware(func(*message.Message) ([]*message.Message, error) {
		return nil, core.Permanent(errors.New("unknown currency"))
	})(delivered("e-1"))
	fmt.Println("dead:", errors.Is(err, inbox.ErrDead))

	dead, err := in.ListDead(ctx, inbox.DeadQuery{})
	check(err)
	var keys []inbox.Key
	for _, p := range dead {
		fmt.Println(p.Handler, p.EventID, p.Text)
		keys = append(keys, p.Key)
	}
	n, err := in.Redrive(ctx, inbox.RedriveRequest{Keys: keys, Actor: "ada", Reason: "currency added"})
	fmt.Println("redriven:", n, err) // now deliver it again, from the poison queue
	// Output:
	// dead: true
	// invoice e-1 unknown currency
	// redriven: 1 <nil>
}

func ExampleInbox_Discard() {
	in := newInbox()
	ctx := context.Background()
	broken := in.Middleware(func(*message.Message) ([]*message.Message, error) {
		return nil, core.Permanent(errors.New("no total"))
	})
	_, err := broken(delivered("e-1"))
	fmt.Println("dead:", errors.Is(err, inbox.ErrDead))

	dead, err := in.ListDead(ctx, inbox.DeadQuery{})
	check(err)
	n, err := in.Discard(ctx, inbox.DiscardRequest{
		Keys: []inbox.Key{dead[0].Key}, Actor: "ada", Reason: "a test order",
	})
	fmt.Println("discarded:", n, err)
	_, err = broken(delivered("e-1"))
	fmt.Println("delivered again:", err)
	// Output:
	// dead: true
	// discarded: 1 <nil>
	// delivered again: <nil>
}

func ExampleChain() {
	in := newInbox(func(c *inbox.Config) {
		c.MaxAttempts = 2
		c.MinAge = -1 // by default 5 minutes, so that a short disturbance makes no event dead
	})
	// A program uses the middleware of Watermill:
	//	poison, err := middleware.PoisonQueueWithFilter(publisher, "billing_poison", inbox.Final)
	//	retry := middleware.Retry{MaxRetries: 3, ShouldRetry: ...}.Middleware
	poison := func(h message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			out, err := h(msg)
			if inbox.Final(err) {
				fmt.Println("to the poison queue")
				return nil, nil
			}
			return out, err
		}
	}
	retry := func(h message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) (out []*message.Message, err error) {
			for range 5 {
				if out, err = h(msg); err == nil || inbox.Final(err) {
					break
				}
			}
			return out, err
		}
	}
	chain, err := inbox.Chain(inbox.ChainConfig{Poison: poison, Retry: retry, Inbox: in})
	check(err)
	_, err = chain(func(*message.Message) ([]*message.Message, error) {
		fmt.Println("attempt")
		return nil, errors.New("does not work")
	})(delivered("e-1"))
	fmt.Println(err)
	// Output:
	// attempt
	// attempt
	// to the poison queue
	// <nil>
}

func ExampleConfig_retention() {
	_, err := inbox.New(inbox.Config{
		Consumer: "billing", Transactor: outboxtest.NewRepository().Transactor(), Store: inboxtest.NewStore(),
		Retention:       7 * 24 * time.Hour,
		BrokerRetention: 7 * 24 * time.Hour, // retention.ms of the topic; time in poison queues
		ReplayWindow:    30 * 24 * time.Hour,
	})
	fmt.Println(err != nil)
	// Output: true
}

func ExampleInbox_Cleanup() {
	store := inboxtest.NewStore()
	in := newInbox(func(c *inbox.Config) {
		c.Store, c.Retention, c.BrokerRetention = store, 31*24*time.Hour, 7*24*time.Hour
	})
	_, err := in.Middleware(func(*message.Message) ([]*message.Message, error) { return nil, nil })(delivered("e-1"))
	check(err)
	store.ShiftClock(32 * 24 * time.Hour)
	n, err := in.Cleanup(context.Background()) // or call go in.Run(ctx)
	fmt.Println(n, err)
	// Output: 1 <nil>
}

func ExampleObserver() {
	in := newInbox(func(c *inbox.Config) {
		c.Observer = &inbox.Observer{
			Processed: func(i inbox.Info) { fmt.Println("processed", i.Event.EventID, "in attempt", i.Attempt) },
			Duplicate: func(i inbox.Info) { fmt.Println("duplicate", i.Event.EventID) },
		}
	})
	handler := in.Middleware(func(*message.Message) ([]*message.Message, error) { return nil, nil })
	for range 2 {
		_, err := handler(delivered("e-1"))
		check(err)
	}
	// Output:
	// processed e-1 in attempt 1
	// duplicate e-1
}

func ExampleNewAtLeastOnce() {
	// In a program: store, err := redisonce.New(client, redisonce.Config{}).
	runner, err := once.New(once.Config{Store: outboxtest.NewOnceStore(), TTL: 31 * 24 * time.Hour})
	check(err)
	search, err := inbox.NewAtLeastOnce(inbox.AtLeastOnceConfig{
		Consumer: "search", Runner: runner, Handler: func(*message.Message) string { return "index" },
	})
	check(err)
	handler := search.Middleware(func(*message.Message) ([]*message.Message, error) {
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
	// With GORM: inbox.Middleware(gormoutbox.Transactor(db), "billing", inbox.CreateTables()).
	transactor := outboxtest.NewRepository().Transactor()
	dedup := inbox.Middleware(transactor, "billing", inbox.Configure(func(c *inbox.Config) {
		c.Store = inboxtest.NewStore()                                 // in memory; a program uses its tables
		c.Handler = func(*message.Message) string { return "invoice" } // in a Router the handler has a name
	}))
	handler := dedup(func(*message.Message) ([]*message.Message, error) {
		fmt.Println("invoiced")
		return nil, nil
	})
	for range 3 {
		_, err := handler(delivered("e-1"))
		check(err)
	}
	// Output: invoiced
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
func ExampleInbox_Release() {
	ctx, stop := context.WithCancel(context.Background())
	broker := gochannel.NewGoChannel(gochannel.Config{Persistent: true}, watermill.NopLogger{})
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	check(err)
	var in *inbox.Inbox
	tx := outboxtest.NewRepository().Transactor()
	router.AddMiddleware(inbox.Middleware(tx, "billing", inbox.Poison(broker, "billing_poison"), inbox.Into(&in),
		inbox.Configure(func(c *inbox.Config) { // a program has tables, and a logger that writes
			c.Transactor, c.Store, c.Logger = tx, inboxtest.NewStore(), slog.New(slog.DiscardHandler)
		})))
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
	for dead := []inbox.DeadEvent(nil); len(dead) == 0; {
		dead, err = in.ListDead(ctx, inbox.DeadQuery{})
		check(err)
	}
	repaired.Store(true)
	done, err := in.Release(ctx, inbox.ReleaseRequest{
		From: broker, Topic: "billing_poison", To: broker, Actor: "ada", Reason: "price list corrected",
		Limit: 1, // one on trial; without a limit, Release ends when the queue is empty
	})
	fmt.Printf("%+v %v\n", done, err)
	stop()
	check(<-ended)
	// Output:
	// invoiced
	// {Sent:1 Processed:1 Done:0 Kept:0} <nil>
}

// inMemory keeps the inbox of an Example in memory. A program has tables.
func inMemory() inbox.Option {
	return inbox.Configure(func(c *inbox.Config) {
		c.Store, c.Logger = inboxtest.NewStore(), slog.New(slog.DiscardHandler)
		c.Handler = func(*message.Message) string { return "invoice" } // in a Router the handler has a name
	})
}

// A handler that failed is called once more before the broker delivers the message again.
func ExampleRetry() {
	twice := func(h message.HandlerFunc) message.HandlerFunc { // a program uses Watermill's middleware.Retry
		return func(msg *message.Message) ([]*message.Message, error) {
			if out, err := h(msg); err == nil {
				return out, nil
			}
			return h(msg)
		}
	}
	tx := outboxtest.NewRepository().Transactor()
	attempts := 0
	handler := inbox.Middleware(tx, "billing", inbox.Retry(twice), inMemory())(
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
	router.AddMiddleware(inbox.Middleware(outboxtest.NewRepository().Transactor(), "billing",
		inbox.Publisher(outbox{}), inMemory()))
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
