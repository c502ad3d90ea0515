package core_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/relay"
)

type Invoice struct {
	ID   string
	Paid bool
	core.Recorder
}

func (i *Invoice) Pay() {
	i.Paid = true
	i.Record(core.Event{Type: "invoice.paid", AggregateType: "invoice", AggregateID: i.ID})
}

// A model records its events. The adapter of an ORM hands the events over to the transaction that
// stores the model.
func ExampleRecorder() {
	inv := &Invoice{ID: "7"}
	inv.Pay()
	for _, e := range inv.Recorded() {
		fmt.Println(e.Type, e.AggregateID)
	}
	// Output: invoice.paid 7
}

// A constructor that returns a value moves the model. Adopt says that the events moved too. Without
// Adopt the model is not stored.
func ExampleRecorder_Adopt() {
	newInvoice := func() Invoice {
		var inv Invoice
		inv.Pay()
		return inv
	}
	inv := newInvoice()
	fmt.Println(errors.Is(core.CheckRecorder(&inv.Recorder), core.ErrRecorderCopied))
	inv.Adopt()
	fmt.Println(core.CheckRecorder(&inv.Recorder), len(inv.Recorded()))
	// Output:
	// true
	// <nil> 1
}

// An adapter publishes the recorded events and then reports how the transaction ended.
// After a rollback the events are there again, under the same ids.
func ExampleRecorder_HandOver() {
	inv := &Invoice{ID: "7"}
	inv.Pay()
	for _, outcome := range []core.Outcome{core.RolledBack, core.Committed} {
		events, ended, err := inv.HandOver()
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println("published:", len(events))
		ended(outcome)
		fmt.Println("left after", outcome, len(inv.Recorded()))
	}
	// Output:
	// published: 1
	// left after rolled_back 1
	// published: 1
	// left after committed 0
}

// A publisher marks its errors with their kind.
func ExamplePermanent() {
	publisher := core.PublisherFunc(func(_ context.Context, d core.Delivery) error {
		if len(d.Payload) > 1<<20 {
			return core.Permanent(errors.New("the broker takes no more than 1 MiB"))
		}
		return nil
	})
	err := publisher.Publish(context.Background(), core.Delivery{Event: core.Event{Payload: make([]byte, 2<<20)}})
	class, _ := core.ClassOf(err)
	fmt.Println(class, err)
	// Output: permanent the broker takes no more than 1 MiB
}

// An event has one row for each topic. The id of the row follows from the event id and the topic.
// Further rows of the event get fresh ids in the same range.
func ExampleNewRowID() {
	const event = "018f3e2a-7b1c-7def-8123-456789abcdef"
	orders, _ := core.NewRowID(event, "orders")
	audit, _ := core.NewRowID(event, "audit")
	first, last, _ := core.RowIDRange(event)
	fmt.Println(orders)
	fmt.Println(audit)
	fmt.Println(first, "to", last)
	// Output:
	// 018f3e2a-7b1c-8def-8a7a-600d26bce434
	// 018f3e2a-7b1c-8def-baf5-f1165cdbb903
	// 018f3e2a-7b1c-8def-8000-000000000000 to 018f3e2a-7b1c-8def-bfff-ffffffffffff
}

// Events with the same tenant, topic and key have the same key id.
func ExampleNewKeyID() {
	a := core.NewKeyID("acme", "orders", "order/7")
	b := core.NewKeyID("acme", "orders", "order/8")
	fmt.Printf("%x\n%x\n%x\n", a, b, core.KeyIDPrefix("orders"))
	// Output:
	// 1c168adbcee0f1be5ef7f2cd971a6963
	// 1c168adb6c37161dd7108283af1c8cee
	// 1c168adb
}

// Validate reports all problems at once.
func ExampleConfig_Validate() {
	err := core.Config{Relay: relay.Config{Workers: -1}, DeadPolicy: 9}.Validate()
	fmt.Println(err)
	// Output:
	// outbox: config: Repository is missing
	// outbox: config: DeadPolicy 9 is unknown
	// outbox: config: Relay.Workers is negative
}

// All observers get the same calls.
func ExampleTeeObserver() {
	metrics := &core.Observer{Inserted: func(topic string, _ bool) { fmt.Println("metrics:", topic) }}
	traces := &core.Observer{Inserted: func(topic string, _ bool) { fmt.Println("traces:", topic) }}
	repo := outboxtest.NewRepository()
	ob, err := core.New(core.Config{Repository: repo, Observer: core.TeeObserver(metrics, traces)})
	if err != nil {
		panic(err)
	}
	err = repo.Transactor().RunInTx(context.Background(), func(ctx context.Context, tx core.Tx) error {
		_, err := ob.Publish(ctx, tx, core.Event{Type: "order.placed"})
		return err
	})
	fmt.Println(err)
	// Output:
	// metrics: order.placed
	// traces: order.placed
	// <nil>
}

// Publish also finds the transaction in the context.
func ExampleContextWithTx() {
	repo := outboxtest.NewRepository()
	ob, err := core.New(core.Config{Repository: repo})
	if err != nil {
		panic(err)
	}
	_, err = ob.Publish(context.Background(), nil, core.Event{Type: "order.placed"})
	fmt.Println(errors.Is(err, core.ErrNoTransaction))
	// ctx carries the transaction
	err = repo.Transactor().RunInTx(context.Background(), func(ctx context.Context, _ core.Tx) error {
		_, err := ob.Publish(ctx, nil, core.Event{Type: "order.placed"})
		return err
	})
	fmt.Println(err, len(repo.Rows()))
	// Output:
	// true
	// <nil> 1
}

// DeriveEventID turns another identity, such as an order number, into an event id. The same
// identity gives the same id each time.
func ExampleDeriveEventID() {
	fmt.Println(core.DeriveEventID("order 42"))
	// Output:
	// 359a2e1f-46f3-8609-86e1-3e69ac314c32
}

type requestID struct{}

// A batch records the events of two requests in one call. Each has the headers of its own request.
func ExampleEvent_WithContext() {
	repo := outboxtest.NewRepository()
	ob, err := core.New(core.Config{Repository: repo, Headers: func(ctx context.Context) map[string]string {
		return map[string]string{"request": ctx.Value(requestID{}).(string)}
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	one := context.WithValue(context.Background(), requestID{}, "one")
	two := context.WithValue(context.Background(), requestID{}, "two")
	err = repo.Transactor().RunInTx(one, func(ctx context.Context, tx core.Tx) error {
		_, err := ob.Publish(ctx, tx,
			core.Event{Type: "order.placed", AggregateID: "1"},
			core.Event{Type: "order.placed", AggregateID: "2"}.WithContext(two))
		return err
	})
	for _, row := range repo.Rows() {
		fmt.Println(row.Event.AggregateID, row.Event.Headers["request"])
	}
	fmt.Println(err)
	// Output:
	// 1 one
	// 2 two
	// <nil>
}
