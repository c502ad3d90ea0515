package watermillbridge_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/cloudevents"
	"github.com/ormoutbox/ormoutbox/watermillbridge"
)

// A relay publishes through a Watermill Pub/Sub. A consumer reads the event from the message.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	// Only in tests, because it loses messages.
	pubsub := gochannel.NewGoChannel(gochannel.Config{OutputChannelBuffer: 1}, watermill.NopLogger{})
	messages, err := pubsub.Subscribe(ctx, "orders")
	if err != nil {
		fmt.Println(err)
		return
	}

	publisher, err := watermillbridge.NewPublisher(pubsub, watermillbridge.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer publisher.Close(ctx)

	// The relay does this for every event: core.Config{Publisher: publisher}.
	event := core.Event{
		ID: "018f2d3e-4c5b-7000-8000-000000000001", Type: "order.placed", Topic: "orders",
		Key: "order/o-1", Payload: []byte(`{"total":7}`),
	}
	if err := publisher.Publish(ctx, core.Delivery{Event: event, KeySeq: 1, Attempt: 1}); err != nil {
		fmt.Println(err)
		return
	}

	msg := <-messages
	received, err := watermillbridge.EventFromMessage(msg)
	if err != nil {
		fmt.Println(err)
		return
	}
	msg.Ack()
	fmt.Println(received.Type, received.Key, received.KeySeq, string(received.Payload))
	// Output: order.placed order/o-1 1 {"total":7}
}

func ExampleNewPublisher() {
	pubsub := gochannel.NewGoChannel(gochannel.Config{Persistent: true}, watermill.NopLogger{})
	publisher, err := watermillbridge.NewPublisher(pubsub, watermillbridge.Config{
		Topic: func(d core.Delivery) string { return "prod." + d.Topic },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(publisher.Stuck())
	fmt.Println(publisher.Close(context.Background()))
	// Output:
	// 0
	// <nil>
}

// Marshal adds metadata of its own.
func ExampleNewMessage() {
	cfg := watermillbridge.Config{Marshal: func(ctx context.Context, d core.Delivery) (*message.Message, error) {
		msg := watermillbridge.NewMessage(ctx, d)
		msg.Metadata.Set("region", "eu")
		return msg, nil
	}}
	msg, err := cfg.Marshal(context.Background(),
		core.Delivery{Event: core.Event{ID: "018f2d3e-4c5b-7000-8000-000000000001", Type: "order.placed"}})
	fmt.Println(msg.Metadata["event_type"], msg.Metadata["region"], err)
	// Output: order.placed eu <nil>
}

// A consumer that knows CloudEvents needs nothing of this project.
func ExampleNewCloudEvent() {
	mapper := &cloudevents.Mapper{Source: "https://shop.example/orders", Binding: cloudevents.Kafka}
	msg, err := watermillbridge.NewCloudEvent(context.Background(),
		core.Delivery{Event: core.Event{ID: "018f2d3e-4c5b-7000-8000-000000000001", Type: "order.placed"}}, mapper)
	fmt.Println(msg.Metadata["ce_source"], msg.Metadata["ce_type"], msg.Metadata["event_type"], err)
	// Output: https://shop.example/orders order.placed order.placed <nil>
}

func ExampleEventFromMessage() {
	msg := message.NewMessage("", []byte("hello"))
	_, err := watermillbridge.EventFromMessage(msg)
	fmt.Println(err)
	// Output:
	// watermillbridge: not a message of an outbox: metadata event_id: event id "" is neither a UUID nor a ULID
	// metadata event_type: it is missing
}

// printingOutbox stands for a *core.Outbox.
type printingOutbox struct{}

func (printingOutbox) Publish(_ context.Context, _ core.Tx, events ...core.Event) ([]string, error) {
	for _, e := range events {
		fmt.Println(e.Topic, e.Type, string(e.Payload))
	}
	return nil, nil
}

// orderTx stands for the transaction that an adapter put into the context.
type orderTx struct{ core.Tx }

// Watermill code publishes in the transaction of its context.
func ExampleNewOutboxPublisher() {
	var publisher message.Publisher
	publisher, err := watermillbridge.NewOutboxPublisher(printingOutbox{}, watermillbridge.OutboxConfig{})
	if err != nil {
		fmt.Println(err)
		return
	}

	ctx := core.ContextWithTx(context.Background(), orderTx{}) // RunInTx of an adapter does it
	msg := message.NewMessageWithContext(ctx, watermill.NewUUID(), []byte(`{"total":7}`))
	msg.Metadata.Set(core.HeaderEventType, "order.placed")
	fmt.Println(publisher.Publish("orders", msg))

	err = publisher.Publish("orders", message.NewMessage(watermill.NewUUID(), nil))
	fmt.Println("without a transaction:", errors.Is(err, core.ErrNoTransaction))
	// Output:
	// orders order.placed {"total":7}
	// <nil>
	// without a transaction: true
}

// The publisher belongs to one transaction, as with a Forwarder.
func ExampleOutboxPublisher_InTx() {
	publisher, err := watermillbridge.NewOutboxPublisher(printingOutbox{}, watermillbridge.OutboxConfig{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(publisher.InTx(orderTx{}).Publish("orders", message.NewMessage(watermill.NewUUID(), []byte("{}"))))
	// Output:
	// orders orders {}
	// <nil>
}

// Watermill's middleware takes the relay's publisher as a message.Publisher:
// middleware.PoisonQueue(plain, "poison").
func ExamplePublisher_MessagePublisher() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	// Only in tests, because it loses messages.
	pubsub := gochannel.NewGoChannel(gochannel.Config{OutputChannelBuffer: 1}, watermill.NopLogger{})
	messages, err := pubsub.Subscribe(ctx, "poison")
	if err != nil {
		fmt.Println(err)
		return
	}
	publisher, err := watermillbridge.NewPublisher(pubsub, watermillbridge.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer publisher.Close(ctx)

	plain := publisher.MessagePublisher(time.Minute)
	if err := plain.Publish("poison", message.NewMessage("id", []byte("cannot be handled"))); err != nil {
		fmt.Println(err)
		return
	}
	msg := <-messages
	msg.Ack()
	fmt.Println(msg.UUID, string(msg.Payload))
	// Output: id cannot be handled
}
