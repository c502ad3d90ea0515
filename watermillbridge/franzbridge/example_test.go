package franzbridge_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"github.com/ormoutbox/ormoutbox/watermillbridge/franzbridge"
)

func ExampleNewPublisher() {
	publisher, err := franzbridge.NewPublisher(franzbridge.Config{
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

// TLS, passwords and compression are options of franz-go. Unsafe ones are refused.
func ExampleConfig() {
	options := []kgo.Opt{
		kgo.DialTLSConfig(&tls.Config{MinVersion: tls.VersionTLS12}),
		kgo.SASL(plain.Auth{User: "orders", Pass: "secret"}.AsMechanism()),
		kgo.ProducerBatchCompression(kgo.ZstdCompression()),
	}
	publisher, err := franzbridge.NewPublisher(franzbridge.Config{Brokers: []string{"kafka:9093"}, Options: options})
	if err == nil {
		defer publisher.Close(context.Background())
	}
	fmt.Println(err)

	_, err = franzbridge.NewPublisher(franzbridge.Config{
		Brokers: []string{"kafka:9093"}, Options: append(options, kgo.ManualFlushing()),
	})
	fmt.Println(err)
	// Output:
	// <nil>
	// franzbridge: unsafe options:
	// ManualFlushing is set: messages would not be flushed; leave it out
}
