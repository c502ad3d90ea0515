package kafkabridge_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/ormoutbox/ormoutbox/watermillbridge/kafkabridge"
)

func ExampleNewPublisher() {
	publisher, err := kafkabridge.NewPublisher(kafkabridge.Config{
		Brokers:        []string{"kafka-1:9092", "kafka-2:9092"},
		PublishTimeout: 5 * time.Second, // the same as in core.Config
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer publisher.Close(context.Background())
	fmt.Println("nothing is connected yet")
	// Output: nothing is connected yet
}

// To set TLS and passwords, change the safe configuration, not Sarama's defaults.
func ExampleSaramaConfig() {
	c := kafkabridge.SaramaConfig(5 * time.Second)
	c.Net.TLS.Enable, c.Net.TLS.Config = true, &tls.Config{MinVersion: tls.VersionTLS12}
	c.Net.SASL.Enable, c.Net.SASL.User, c.Net.SASL.Password = true, "orders", "secret"

	_, err := kafkabridge.NewPublisher(kafkabridge.Config{Brokers: []string{"kafka:9093"}, Sarama: c})
	fmt.Println(err)

	c.Producer.RequiredAcks = sarama.WaitForLocal
	_, err = kafkabridge.NewPublisher(kafkabridge.Config{Brokers: []string{"kafka:9093"}, Sarama: c})
	fmt.Println(err)
	// Output:
	// <nil>
	// kafkabridge: unsafe Sarama configuration:
	// Producer.RequiredAcks is 1: a message that only the leader has is lost with it; set sarama.WaitForAll
}

// Kafka's Java client chooses the same partition.
func ExampleNewPartitioner() {
	p := kafkabridge.NewPartitioner("orders")
	n, err := p.Partition(&sarama.ProducerMessage{Key: sarama.StringEncoder("order/o-2")}, 12)
	fmt.Println(n, err)
	// Output: 1 <nil>
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

// Decorate sees every message, for metrics and tracing. Receipts and the classes of errors stay the
// same.
func ExampleConfig_decorate() {
	var published atomic.Int64
	publisher, err := kafkabridge.NewPublisher(kafkabridge.Config{
		Brokers:  []string{"kafka-1:9092"},
		Decorate: func(p message.Publisher) message.Publisher { return counted{p, &published} },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer publisher.Close(context.Background())
	fmt.Println(published.Load(), "so far")
	// Output: 0 so far
}

// The relay's publisher is also the safe publisher for a poison queue and for replies:
// middleware.PoisonQueue(plain, "orders.poison").
func Example_poisonQueue() {
	publisher, err := kafkabridge.NewPublisher(kafkabridge.Config{Brokers: []string{"kafka-1:9092"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer publisher.Close(context.Background())

	plain := publisher.MessagePublisher(5 * time.Second)
	fmt.Println(plain.Publish("orders.poison")) // without a message it does not connect
	// Output: <nil>
}

func ExampleNewSubscriber() {
	subscriber, err := kafkabridge.NewSubscriber(kafkabridge.SubscriberConfig{
		Brokers: []string{"kafka-1:9092", "kafka-2:9092"},
		Group:   "billing.invoice", // one group for each handler
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer subscriber.Close()
	fmt.Println("nothing is connected yet")

	c := kafkabridge.SubscriberSaramaConfig()
	c.Consumer.Fetch.Max = 1 << 20
	_, err = kafkabridge.NewSubscriber(kafkabridge.SubscriberConfig{
		Brokers: []string{"kafka-1:9092"}, Group: "billing.invoice", Sarama: c,
	})
	fmt.Println(err)
	// Output:
	// nothing is connected yet
	// kafkabridge: unsafe Sarama configuration:
	// Consumer.Fetch.Max is 1048576: Sarama skips a message that is larger; set 0, which is no limit
}
