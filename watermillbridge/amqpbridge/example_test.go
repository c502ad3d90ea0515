package amqpbridge_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/ormoutbox/ormoutbox/watermillbridge/amqpbridge"
)

func ExampleNewPublisher() {
	publisher, err := amqpbridge.NewPublisher(amqpbridge.Config{
		AMQP:     amqpbridge.PubSubConfig("amqp://guest:guest@localhost:5672/", nil),
		Channels: 64, // the same as relay.Config.Workers
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer publisher.Close(context.Background())
	fmt.Println("nothing is connected yet")
	// Output: nothing is connected yet
}

// The quorum queues exist before their first subscriber.
func ExampleQueueConfig() {
	c := amqpbridge.QueueConfig("amqp://guest:guest@localhost:5672/")
	c.Queue.Arguments = amqp091.Table{"x-queue-type": "quorum"}
	_, err := amqpbridge.NewPublisher(amqpbridge.Config{AMQP: c, DeclareQueues: true})
	fmt.Println(err)
	// Output: <nil>
}

// The publisher needs no queue name; subscribers with the same configuration do.
func ExamplePubSubConfig() {
	c := amqpbridge.PubSubConfig("amqp://guest:guest@localhost:5672/",
		amqp.GenerateQueueNameTopicNameWithSuffix("billing"))
	fmt.Println(c.Exchange.GenerateName("orders"), c.Exchange.Type, c.Queue.GenerateName("orders"))
	// Output: orders fanout orders_billing
}

// Watermill's configuration of a topic exchange is refused, because a restart of the broker removes
// the exchange.
func ExampleTopicConfig() {
	uri := "amqp://guest:guest@localhost:5672/"
	_, err := amqpbridge.NewPublisher(amqpbridge.Config{AMQP: amqp.NewDurableTopicConfig(uri, "events", "billing")})
	fmt.Println(err)
	_, err = amqpbridge.NewPublisher(amqpbridge.Config{AMQP: amqpbridge.TopicConfig(uri, "events", "billing")})
	fmt.Println(err)
	// Output:
	// amqpbridge: unsafe AMQP configuration:
	// Exchange.Durable is false: a restart of the broker removes it with its bindings; set true
	// <nil>
}

// counted is a decorator. Libraries for metrics and tracing have decorators of their own.
type counted struct {
	message.Publisher
	published *atomic.Int64
}

func (c counted) Publish(topic string, messages ...*message.Message) error {
	err := c.Publisher.Publish(topic, messages...)
	if err == nil {
		c.published.Add(int64(len(messages)))
	}
	return err
}

// Decorate sees every message, for metrics and tracing, also the messages of MessagePublisher. That
// one is the safe publisher for a poison queue and for replies.
func ExampleConfig_decorate() {
	var published atomic.Int64
	publisher, err := amqpbridge.NewPublisher(amqpbridge.Config{
		AMQP:     amqpbridge.QueueConfig("amqp://guest:guest@localhost:5672/"),
		Decorate: func(p message.Publisher) message.Publisher { return counted{p, &published} },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer publisher.Close(context.Background())

	plain := publisher.MessagePublisher(5 * time.Second) // for middleware.PoisonQueue(plain, "orders.poison")
	fmt.Println(plain.Publish("orders.poison"), published.Load(), "so far")
	// Output: <nil> 0 so far
}
