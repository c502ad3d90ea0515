package natsbridge_test

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/ormoutbox/ormoutbox/watermillbridge/natsbridge"
)

func ExampleNewPublisher() {
	publisher, err := natsbridge.NewPublisher(natsbridge.Config{
		URL:     "tls://nats-1:4222,tls://nats-2:4222",
		Options: []nats.Option{nats.UserInfo("orders", "secret")},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer publisher.Close(context.Background())
	fmt.Println("nothing is connected yet")
	// Output: nothing is connected yet
}

// A process that shall not start without its streams asks for them.
func ExampleCheck() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err := natsbridge.Check(ctx, natsbridge.Config{URL: "nats://127.0.0.1:1"}, "orders.placed")
	fmt.Println(err)
	// Output: natsbridge: connect to 127.0.0.1:1: nats: no servers available for connection
}

// A consumer: its processes share the messages of a topic.
func ExampleNewSubscriber() {
	subscriber, err := natsbridge.NewSubscriber(natsbridge.SubscriberConfig{
		URL: "nats://127.0.0.1:1", Group: "billing",
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer subscriber.Close()
	_, err = subscriber.Subscribe(context.Background(), "orders.placed") // a Router does it
	fmt.Println(err)
	// Output: natsbridge: connect to 127.0.0.1:1: nats: no servers available for connection
}
