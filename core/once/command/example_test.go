package command_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/once/command"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/relay"
)

// An event requests an order. It is delivered twice, and one order is created, because the command,
// the order and its result commit together.
func ExampleRunTx() {
	// in an application: the table of package sqlonce and the transactions of an adapter
	repo := outboxtest.NewRepository()
	commands, err := command.New(once.Config{Store: repo.OnceStore()})
	if err != nil {
		fmt.Println(err)
		return
	}
	type Order struct{ ID string }
	handle := func(ctx context.Context, eventID, quote string) error { // ctx carries the consumer's transaction
		order, replayed, err := command.RunTx(ctx, commands, nil, command.Command{
			Type: "create-order", Tenant: "acme", Key: command.EventKey("QuoteAccepted", eventID), Input: quote,
		}, func(ctx context.Context) (Order, error) {
			// ... insert the order ...
			return Order{"o-" + quote}, nil
		})
		fmt.Println(order.ID, replayed, errors.Is(err, once.ErrFingerprintMismatch))
		return err
	}
	for _, quote := range []string{"q7", "q7", "q8"} {
		_ = repo.Transactor().RunInTx(context.Background(),
			func(ctx context.Context, _ core.Tx) error { return handle(ctx, "018f", quote) })
	}
	// Output:
	// o-q7 false false
	// o-q7 true false
	//  false true
}

// Run is for work whose effects are not in the database of the keys.
func ExampleRun() {
	commands, _ := command.New(once.Config{Store: outboxtest.NewOnceStore()})
	for range 2 {
		id, replayed, err := command.Run(context.Background(), commands,
			command.Command{Type: "refund", Tenant: "acme", Key: "invoice-7"},
			func(ctx context.Context) (string, error) {
				claim, _ := once.ClaimOf(ctx)
				return "re_" + claim.Key.ID, nil // the answer of the payment provider
			})
		fmt.Println(id, replayed, err)
	}
	// Output:
	// re_invoice-7 false <nil>
	// re_invoice-7 true <nil>
}

// RunInTx opens the transaction. It runs the transaction again if it failed only because of other
// transactions.
func ExampleRunInTx() {
	repo := outboxtest.NewRepository()
	outbox, _ := core.New(core.Config{Repository: repo})
	commands, _ := command.New(once.Config{Store: repo.OnceStore()})
	for range 2 {
		n, replayed, err := command.RunInTx(context.Background(), commands, repo.Transactor(),
			command.Command{Type: "close-month", Key: "2026-11"},
			func(ctx context.Context, tx core.Tx) (int, error) {
				_, err := outbox.Publish(ctx, tx, core.Event{Type: "month.closed"})
				return 31, err
			})
		fmt.Println(n, replayed, err, len(repo.Rows()))
	}
	// Output:
	// 31 false <nil> 1
	// 31 true <nil> 1
}

// A person decides that a dead effect will never be executed.
func ExampleQueue_Discard() {
	ctx, repo := context.Background(), outboxtest.NewRepository()
	store := newMemory() // in an application: sqlcommand.New
	outbox, _ := core.New(core.Config{Repository: repo})
	queue, err := command.NewQueue(command.QueueConfig{Store: store, Outbox: outbox})
	if err != nil {
		fmt.Println(err)
		return
	}
	mail := command.Effect{Channel: "mail", Key: "welcome:ada"}
	var id string
	_ = repo.Transactor().RunInTx(ctx, func(ctx context.Context, tx core.Tx) error {
		rec, _, err := queue.Enqueue(ctx, tx, mail)
		id = rec.ID
		return err
	})
	claim, _ := store.Claim(ctx, id, "a worker", time.Minute) // its server refuses the mail
	_ = store.Fail(ctx, command.Claim{ID: id, Owner: "a worker", Fence: claim.Fence}, command.Failure{Dead: true})

	err = repo.Transactor().RunInTx(ctx, func(ctx context.Context, tx core.Tx) error {
		discarded, err := queue.Discard(ctx, tx, id, "ada", "no such address")
		fmt.Println("discarded:", discarded)
		return err
	})
	rec, _ := queue.Find(ctx, "", "mail", "welcome:ada")
	fmt.Println(rec.Status, err)
	// Output:
	// discarded: true
	// discarded <nil>
}

// The relay of a service executes effects: their events are in topics of the channel. A crash after
// the commit loses no mail, because the relay of another process executes it.
func ExampleNewWorker() {
	ctx, repo := context.Background(), outboxtest.NewRepository()
	store := newMemory() // in an application: sqlcommand.New
	worker, err := command.NewWorker(command.WorkerConfig{
		Store: store,
		Handlers: map[string]command.Handler{
			"mail": func(_ context.Context, e command.Effect) (string, error) {
				fmt.Println("mail", e.Key) // give e.IdempotencyKey() to a server that recognises copies
				return "queued as 250", nil
			},
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	router := core.NewRouter()
	worker.AddTo(router)
	outbox, _ := core.New(core.Config{Repository: repo, Publisher: router, Relay: relay.Config{}})
	queue, _ := command.NewQueue(command.QueueConfig{Store: store, Outbox: outbox})

	_ = repo.Transactor().RunInTx(ctx, func(ctx context.Context, tx core.Tx) error {
		_, _, err := queue.Enqueue(ctx, tx, command.Effect{Channel: "mail", Key: "welcome:ada"})
		return err
	})
	_ = outbox.Drain(ctx) // a service calls go outbox.Run(ctx)
	rec, _ := queue.Find(ctx, "", "mail", "welcome:ada")
	fmt.Println(command.Topic("mail"), rec.Status, rec.ExternalRef)
	// Output:
	// mail welcome:ada
	// effect.mail completed queued as 250
}
