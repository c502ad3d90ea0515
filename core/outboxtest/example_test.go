package outboxtest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/relay"
)

// placeOrder is code of the application. It depends only on a Transactor and an Outbox.
func placeOrder(ctx context.Context, db core.Transactor, ob *core.Outbox, id string) error {
	return db.RunInTx(ctx, func(ctx context.Context, tx core.Tx) error {
		// ... the order is stored with tx ...
		_, err := ob.Publish(ctx, tx, core.Event{Type: "order.placed", AggregateType: "order", AggregateID: id})
		return err
	})
}

// The test of an application runs its code on a table in memory and checks the published events.
func ExampleNewOutbox() {
	t := &testing.T{} // the t of the test

	ob := outboxtest.NewOutbox(t, core.Config{})
	ctx := context.Background()
	must(t, placeOrder(ctx, ob.Transactor, ob.Outbox, "7"))
	must(t, ob.Drain(ctx))
	d := outboxtest.RequirePublished(t, ob.Publisher, outboxtest.Match{Type: "order.placed"})
	outboxtest.RequireNotPublished(t, ob.Publisher, outboxtest.Match{Type: "order.cancelled"})
	fmt.Println(d.Topic, d.Key, d.Attempt)
	// Output: order order/7 1
}

// A broker is down, and later up again.
func ExamplePublisher() {
	t := &testing.T{}

	ob := outboxtest.NewOutbox(
		t,
		core.Config{Relay: relay.Config{Breaker: relay.BreakerPolicy{ProbeInterval: 10 * time.Millisecond}}},
	)
	ctx := context.Background()
	ob.Publisher.Outage("order", nil)
	must(t, placeOrder(ctx, ob.Transactor, ob.Outbox, "7"))
	err := ob.Drain(ctx)
	fmt.Println("down:", len(ob.Publisher.Accepted()), errors.Is(err, core.ErrStopped))

	ob.Publisher.Restore("order")
	running, stop := context.WithCancel(ctx)
	done := make(chan error)
	go func() { done <- ob.Run(running) }()
	accepted := ob.Publisher.Wait(t, 1)
	stop()
	fmt.Println("up:", len(accepted), <-done)
	// Output:
	// down: 0 true
	// up: 1 <nil>
}

// The transactions of the table in memory behave like those of a database. Here the answer of
// COMMIT is lost. The caller cannot know the outcome, and the row was committed.
func ExampleRepository_FailCommit() {
	repo := outboxtest.NewRepository()
	ob, err := core.New(core.Config{Repository: repo})
	if err != nil {
		panic(err)
	}
	repo.FailCommit(outboxtest.CommitAnswerLost)
	err = placeOrder(context.Background(), repo.Transactor(), ob, "7")
	fmt.Println(err != nil, len(repo.Rows()), repo.Rows()[0].Status)
	// Output: true 1 new
}

// The third claim fails. All other calls succeed.
func ExampleFaultyRepository() {
	repo := outboxtest.NewFaultyRepository(outboxtest.NewRepository())
	repo.Fail(outboxtest.Fault{Method: outboxtest.MethodClaimUnordered, N: 3})
	for range 4 {
		_, err := repo.ClaimUnordered(context.Background(), core.ClaimRequest{Limit: 1, MaxBytes: 1})
		fmt.Println(err)
	}
	// Output:
	// <nil>
	// <nil>
	// connection lost
	// <nil>
}
