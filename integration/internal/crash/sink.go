package crash

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/watermillbridge/amqpbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/franzbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/kafkabridge"
)

// HeaderFrom is the header of a copy in a real broker that names the process that published it.
// HeaderCold is there if the process had claimed the event from the table.
const (
	HeaderFrom = "crash-from"
	HeaderCold = "crash-cold"
)

// NotePublished is the note that a process has published its first event to a real broker.
const NotePublished = "published"

// Broker publishes to a real broker in the name of one process.
type Broker interface {
	core.Publisher
	Close(ctx context.Context) error
}

// NewBroker returns the publisher to the broker that s names, in the name of s.Name. It is a
// core.AsyncPublisher if that of the broker is one. NewBroker must not be called for ToLedger. It
// tries to connect until ctx ends, because the timeouts are short and the machine may be busy.
func NewBroker(ctx context.Context, s Spec) (Broker, error) {
	for {
		pub, err := s.broker()
		if err == nil {
			b := &broker{Broker: pub, from: s.Name, ledger: NewClient(s.Ledger, s.Name)}
			if async, ok := pub.(core.AsyncPublisher); ok {
				return &asyncBroker{broker: b, async: async}, nil
			}
			return b, nil
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return nil, err
		}
	}
}

func (s Spec) broker() (Broker, error) {
	switch s.Sink {
	case ToKafka:
		return kafkabridge.NewPublisher(kafkabridge.Config{
			Brokers:        strings.Split(s.SinkAddr, ","),
			PublishTimeout: s.timeout(),
		})
	case ToFranz:
		return franzbridge.NewPublisher(franzbridge.Config{
			Brokers:        strings.Split(s.SinkAddr, ","),
			PublishTimeout: s.timeout(),
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

// broker adds the name of its process to the headers of each event.
type broker struct {
	Broker
	from   string
	ledger *Client
	first  sync.Once // tells the Ledger once that an event was published
}

func (b *broker) Publish(ctx context.Context, d core.Delivery) error {
	err := b.Broker.Publish(ctx, b.signed(ctx, d))
	b.answered(err)
	return err
}

func (b *broker) signed(ctx context.Context, d core.Delivery) core.Delivery {
	d.Headers = maps.Clone(d.Headers)
	if d.Headers == nil {
		d.Headers = map[string]string{}
	}
	d.Headers[HeaderFrom] = b.from
	if isCold(ctx) {
		d.Headers[HeaderCold] = "true"
	}
	return d
}

func (b *broker) answered(err error) {
	if err != nil { // this copy may exist, and another one may follow
		b.ledger.Note("unanswered", 1)
		return
	}
	b.first.Do(func() { b.ledger.Note(NotePublished, 1) })
}

// asyncBroker is a broker that takes many events at once.
type asyncBroker struct {
	*broker
	async core.AsyncPublisher
}

func (b *asyncBroker) PublishAsync(ctx context.Context, d core.Delivery, done func(string, error)) {
	b.async.PublishAsync(ctx, b.signed(ctx, d), func(receipt string, err error) {
		b.answered(err)
		done(receipt, err)
	})
}

// sink returns the publisher of the child.
func (s Spec) sink(ledger *Client) (core.Publisher, error) {
	if s.Sink == ToLedger {
		return ledger, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	return NewBroker(ctx, s)
}
