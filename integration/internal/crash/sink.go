package crash

import (
	"context"
	"fmt"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/watermillbridge/amqpbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/kafkabridge"
)

// NewSink returns the publisher to the broker that s names; it is not for ToLedger.
func NewSink(s Spec) (core.Publisher, error) {
	switch s.Sink {
	case ToKafka:
		return kafkabridge.NewPublisher(kafkabridge.Config{Brokers: []string{s.SinkAddr}, PublishTimeout: publishTimeout})
	case ToRabbit:
		return amqpbridge.NewPublisher(amqpbridge.Config{
			AMQP: amqpbridge.QueueConfig(s.SinkAddr), Channels: workers, ConnectTimeout: publishTimeout, DeclareQueues: true,
		})
	case ToLedger:
	}
	return nil, fmt.Errorf("no broker %q", s.Sink)
}

// sink returns where the child publishes.
func (s Spec) sink(ledger *Client) (core.Publisher, error) {
	if s.Sink == ToLedger {
		return ledger, nil
	}
	p, err := NewSink(s)
	if err != nil {
		return nil, err
	}
	return core.PublisherFunc(func(ctx context.Context, d core.Delivery) error {
		err := p.Publish(ctx, d)
		if err != nil {
			ledger.Note("unanswered", 1)
		}
		return err
	}), nil
}
