package crash

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/watermillbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/amqpbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/kafkabridge"
)

// HeaderFrom is the header of a copy in a real broker that names the process that published it.
// HeaderCold is there if the process had claimed the event from the table.
const (
	HeaderFrom = "crash-from"
	HeaderCold = "crash-cold"
)

// Broker publishes to a real broker in the name of one process.
type Broker struct {
	from   string
	ledger *Client
	pub    *watermillbridge.Publisher
}

// NewBroker returns the publisher to the broker that s names, in the name of s.Name. It must not be
// called for ToLedger. It tries to connect until ctx ends, because the timeouts are short and the
// machine may be busy.
func NewBroker(ctx context.Context, s Spec) (*Broker, error) {
	for {
		pub, err := s.broker()
		if err == nil {
			return &Broker{from: s.Name, ledger: NewClient(s.Ledger, s.Name), pub: pub}, nil
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return nil, err
		}
	}
}

func (s Spec) broker() (*watermillbridge.Publisher, error) {
	switch s.Sink {
	case ToKafka:
		return kafkabridge.NewPublisher(kafkabridge.Config{
			Brokers:        []string{s.SinkAddr},
			PublishTimeout: publishTimeout,
		})
	case ToRabbit:
		return amqpbridge.NewPublisher(amqpbridge.Config{
			AMQP: amqpbridge.QueueConfig(s.SinkAddr), Channels: workers, ConnectTimeout: publishTimeout,
			DeclareQueues: true,
		})
	case ToLedger:
	}
	return nil, fmt.Errorf("no broker %q", s.Sink)
}

// Publish implements core.Publisher.
func (b *Broker) Publish(ctx context.Context, d core.Delivery) error {
	d.Headers = maps.Clone(d.Headers)
	if d.Headers == nil {
		d.Headers = map[string]string{}
	}
	d.Headers[HeaderFrom] = b.from
	if isCold(ctx) {
		d.Headers[HeaderCold] = "true"
	}
	err := b.pub.Publish(ctx, d)
	if err != nil { // accepted or not: this copy may exist, and another one
		b.ledger.Note("unanswered", 1)
	}
	return err
}

// Close closes the connection to the broker.
func (b *Broker) Close(ctx context.Context) error { return b.pub.Close(ctx) }

// sink returns the publisher of the child.
func (s Spec) sink(ledger *Client) (core.Publisher, error) {
	if s.Sink == ToLedger {
		return ledger, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	return NewBroker(ctx, s)
}
