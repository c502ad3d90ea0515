package inbox_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/inbox/inboxtest"
	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
)

func newInbox() *inbox.Inbox {
	in, err := inbox.New(inbox.Config{
		Consumer: "billing", Handler: "invoice",
		Transactor: outboxtest.NewRepository().Transactor(), // in an application: sqltx.NewTransactor(db, "")
		Store:      inboxtest.NewStore(),                    // and a sqlinbox.Store
	})
	if err != nil {
		panic(err)
	}
	return in
}

// A consumer with any client library.
func ExampleInbox_Process() {
	in, ctx := newInbox(), context.Background()
	handle := func(_ context.Context, _ core.Tx, msg inbox.Message) error { // writes to tx
		if string(msg.Payload) == "" {
			return core.Permanent(errors.New("no payload"))
		}
		fmt.Println("invoice for", string(msg.Payload))
		return nil
	}
	for _, msg := range []inbox.Message{
		{ID: "1", Topic: "orders", Payload: []byte("order 7")},
		{ID: "1", Topic: "orders", Payload: []byte("order 7")}, // delivered twice
		{ID: "2", Topic: "orders"},
	} {
		switch res := in.Process(ctx, msg, handle); res.Action {
		case inbox.Ack:
			fmt.Println("acknowledge", msg.ID)
		case inbox.Retry:
			fmt.Println("deliver", msg.ID, "again after", res.After)
		case inbox.Dead:
			fmt.Println("dead-letter queue:", msg.ID)
		}
	}
	// Output:
	// invoice for order 7
	// acknowledge 1
	// acknowledge 1
	// dead-letter queue: 2
}

func ExampleInbox_ProcessBatch() {
	in := newInbox()
	msgs := []inbox.Message{{ID: "a"}, {ID: "b"}, {ID: "a"}}
	for range 2 {
		results := in.ProcessBatch(context.Background(), msgs,
			func(_ context.Context, _ core.Tx, fresh []inbox.Message) error {
				fmt.Println("fresh:", len(fresh)) // one transaction for all of them
				return nil
			})
		fmt.Println(results[0].Action, results[1].Action, results[2].Action)
	}
	// Output:
	// fresh: 2
	// ack ack ack
	// ack ack ack
}

// A person decides that a dead event will never be processed.
func ExampleInbox_Discard() {
	in, ctx := newInbox(), context.Background()
	deliver := func() {
		res := in.Process(ctx, inbox.Message{ID: "1"}, func(context.Context, core.Tx, inbox.Message) error {
			return core.Permanent(errors.New("no total"))
		})
		fmt.Println(res.Action, res.Outcome)
	}
	deliver()
	dead, err := in.ListDead(ctx, inbox.DeadQuery{})
	if err != nil {
		panic(err)
	}
	n, err := in.Discard(ctx, []inbox.Key{dead[0].Key}, "ada", "a test order")
	fmt.Println(n, err)
	deliver()
	// Output:
	// dead dead
	// 1 <nil>
	// ack duplicate
}

// Effects that are in no database: the lease is in Redis (module inbox/redisonce), or in any other
// store of package once.
func ExampleAtLeastOnce_Process() {
	runner, _ := once.New(once.Config{Store: outboxtest.NewOnceStore()})
	consumer, err := inbox.NewAtLeastOnce(inbox.AtLeastOnceConfig{
		Consumer: "mailer", Handler: "welcome",
		Runner: runner,
	})
	if err != nil {
		panic(err)
	}
	for range 2 {
		res := consumer.Process(context.Background(), inbox.Message{ID: "1"},
			func(context.Context, inbox.Message) error {
				fmt.Println("mail sent")
				return nil
			})
		fmt.Println(res.Action)
	}
	// Output:
	// mail sent
	// ack
	// ack
}
