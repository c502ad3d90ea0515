package kafkabridge_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"time"

	"github.com/IBM/sarama"

	"github.com/ormoutbox/ormoutbox/watermillbridge/kafkabridge"
)

func ExampleNewPublisher() {
	publisher, err := kafkabridge.NewPublisher(kafkabridge.Config{
		Brokers:        []string{"kafka-1:9092", "kafka-2:9092"},
		PublishTimeout: 5 * time.Second, // that of core.Config
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer publisher.Close(context.Background())
	fmt.Println("nothing is connected yet")
	// Output: nothing is connected yet
}

// TLS and passwords: change the safe configuration, not Sarama's defaults.
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

// The partition that Kafka's Java client chooses too.
func ExampleNewPartitioner() {
	p := kafkabridge.NewPartitioner("orders")
	n, err := p.Partition(&sarama.ProducerMessage{Key: sarama.StringEncoder("order/o-2")}, 12)
	fmt.Println(n, err)
	// Output: 1 <nil>
}
