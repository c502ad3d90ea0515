package core_test

import (
	"context"
	"fmt"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/relay"
)

// batches is a client that sends events in batches and learns later whether they were accepted.
type batches struct {
	events chan batched
}

type batched struct {
	core.Delivery
	done func(receipt string, err error)
}

// PublishAsync returns at once. A client that can block has to watch ctx as well.
func (b batches) PublishAsync(ctx context.Context, d core.Delivery, done func(string, error)) {
	select {
	case b.events <- batched{d, done}:
	case <-ctx.Done():
		done("", ctx.Err())
	}
}

// Publish is for callers other than a relay.
func (b batches) Publish(ctx context.Context, d core.Delivery) error {
	result := make(chan error, 1)
	b.PublishAsync(ctx, d, func(_ string, err error) { result <- err })
	return <-result
}

// send answers for each event.
func (b batches) send() {
	for e := range b.events {
		e.done(e.Topic+"@7", nil)
	}
}

// The relay hands over events of different keys while earlier ones are not answered.
func ExampleAsyncPublisher() {
	publisher := batches{events: make(chan batched, 1024)}
	go publisher.send()
	defer close(publisher.events)

	table := outboxtest.NewRepository()
	ob, err := core.New(core.Config{Repository: table, Publisher: publisher, Relay: relay.Config{InFlight: 500}})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	err = table.Transactor().RunInTx(ctx, func(ctx context.Context, tx core.Tx) error {
		_, err := ob.Publish(ctx, tx, core.Event{Type: "order.placed"}, core.Event{Type: "order.placed"})
		return err
	})
	fmt.Println(err, ob.Drain(ctx))
	for _, row := range table.Rows() {
		fmt.Println(row.Status, row.Receipt)
	}
	// Output:
	// <nil> <nil>
	// done order.placed@7
	// done order.placed@7
}
