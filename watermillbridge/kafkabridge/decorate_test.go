package kafkabridge_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/watermillbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/kafkabridge"
)

// copying is a decorator that sends copies, tries twice, and wraps errors.
type copying struct {
	message.Publisher
	calls *atomic.Int32
}

var errDecorated = errors.New("decorated")

func (c copying) Publish(topic string, msgs ...*message.Message) (err error) {
	for range 2 {
		c.calls.Add(1)
		for _, msg := range msgs {
			own := msg.Copy()
			own.SetContext(msg.Context())
			own.Metadata.Set("traceparent", "00-1-1-01")
			if err = c.Publisher.Publish(topic, own); err != nil {
				err = fmt.Errorf("%w: %w", errDecorated, err)
			}
		}
		if err == nil {
			return nil
		}
	}
	return err
}

func TestADecoratedPublisherKeepsReceiptsAndClasses(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	p := newPublisher(t, kafkabridge.Config{
		Brokers:  []string{fakeBroker(t, sarama.ErrTopicAuthorizationFailed)},
		Decorate: func(p message.Publisher) message.Publisher { return copying{p, &calls} },
	})
	receipt, err := publish(t, p, delivery("orders", key1))
	if err != nil || !strings.HasPrefix(receipt, "orders/1@") || calls.Load() != 1 {
		t.Errorf("receipt %q, err %v, %d calls of the decorator; want orders/1@... and 1", receipt, err, calls.Load())
	}
	_, err = publish(t, p, delivery("orders", key0)) // this partition refuses
	class, _ := core.ClassOf(err)
	if !errors.Is(err, errDecorated) || !errors.Is(err, sarama.ErrTopicAuthorizationFailed) ||
		class != core.ClassUnavailable {
		t.Errorf("err = %v, class %v; want the decorated error of the broker, unavailable", err, class)
	}
	if err := p.CheckSize(core.Event{Type: "t", Topic: "orders", Payload: make([]byte, 2<<20)}); err == nil {
		t.Error("the limit is forgotten")
	}

	// The same publisher sends messages that are not events.
	msg := message.NewMessage("u", []byte("x"))
	msg.Metadata.Set(core.HeaderPartitionKey, key1)
	if err := p.MessagePublisher(timeout).Publish("orders", msg); err != nil {
		t.Error(err)
	}
	msg.Metadata.Set(core.HeaderPartitionKey, key0)
	if err := p.MessagePublisher(timeout).Publish("orders", msg); !errors.Is(err, sarama.ErrTopicAuthorizationFailed) {
		t.Errorf("err = %v: the message did not go to the partition of its key", err)
	}
}

func TestADecoratorThatReturnsNothingIsRefused(t *testing.T) {
	t.Parallel()
	_, err := kafkabridge.NewPublisher(kafkabridge.Config{
		Brokers: []string{"localhost:1"}, Decorate: func(message.Publisher) message.Publisher { return nil },
	})
	if err == nil || !strings.Contains(err.Error(), "Config.Decorate") {
		t.Errorf("err = %v, want one that names Config.Decorate", err)
	}
}

// Sarama sends a message that CheckSize accepts, at any attempt. CheckSize refuses a slightly
// larger message.
func TestTheSizeLimitIsSaramas(t *testing.T) {
	t.Parallel()
	const limit = 100_000
	s := kafkabridge.SaramaConfig(timeout)
	s.Version = sarama.V2_1_0_0
	s.Producer.MaxMessageBytes = limit
	p := newPublisher(t, kafkabridge.Config{Brokers: []string{fakeBroker(t, sarama.ErrNoError)}, Sarama: s})
	d := delivery("orders", key1)
	d.Attempt, d.KeySeq = 123_456, 1_795_316_231_065_512
	d.Headers = map[string]string{"a": strings.Repeat("v", 5000), "b": "w"}
	d.AggregateType, d.AggregateID, d.ContentType = "order", "o-2", "application/json"
	largest := limit
	for d.Payload = make([]byte, largest); p.CheckSize(d.Event) != nil; d.Payload = make([]byte, largest) {
		if largest--; largest < limit-10_000 {
			t.Fatal("nothing fits")
		}
	}
	if _, err := publish(t, p, d); err != nil {
		t.Errorf("a payload of %d bytes: %v", largest, err)
	}
	d.Payload = make([]byte, largest+200)
	if _, err := publish(t, p, d); err == nil {
		t.Errorf("a payload of %d bytes would have been sent: the limit is too strict", len(d.Payload))
	}
	err := p.CheckSize(core.Event{Type: "t", Topic: "orders", Payload: make([]byte, 1<<20)})
	if err == nil || !strings.Contains(err.Error(), "Producer.MaxMessageBytes 100000") ||
		!strings.Contains(err.Error(), "max.message.bytes") {
		t.Errorf("err = %v, want one that names the limit and what to change", err)
	}
}

// Core's own default is more than Kafka accepts. Without the check, such an event would become
// DEAD.
func TestThePayloadThatCoreTakesIsRefusedWhereKafkaDoesNot(t *testing.T) {
	t.Parallel()
	p := newPublisher(t, kafkabridge.Config{Brokers: []string{"localhost:1"}})
	if err := p.CheckSize(core.Event{
		ID: core.NewEventID(), Type: "t", Topic: "t",
		Payload: make([]byte, 1<<20),
	}); err == nil {
		t.Error("1 MiB beside its headers is accepted")
	}
	if err := p.CheckSize(core.Event{
		ID: core.NewEventID(), Type: "t", Topic: "t",
		Payload: make([]byte, 1_000_000),
	}); err != nil {
		t.Errorf("1,000,000 bytes: %v", err)
	}
}

// The size of a message of the user's own Marshal is not known. Without a limit for it, the payload
// itself must fit.
func TestTheSizeLimitWithAMarshalOfOnesOwn(t *testing.T) {
	t.Parallel()
	for said, limit := range map[int]int{0: 1_048_576, 3000: 3000, 20 << 20: 20 << 20} {
		b := watermillbridge.Config{
			MaxPayload: said,
			Marshal: func(context.Context, core.Delivery) (*message.Message, error) {
				return message.NewMessage("id", nil), nil
			},
		}
		p, err := kafkabridge.NewPublisher(kafkabridge.Config{Brokers: []string{"localhost:1"}, Bridge: b})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.CheckSize(core.Event{Type: "t", Topic: "t", Payload: make([]byte, limit)}); err != nil {
			t.Errorf("MaxPayload %d: %d bytes: %v", said, limit, err)
		}
		err = p.CheckSize(core.Event{Type: "t", Topic: "t", Payload: make([]byte, limit+1)})
		if err == nil || !strings.Contains(err.Error(), "MaxPayload") {
			t.Errorf("MaxPayload %d: %d bytes: %v", said, limit+1, err)
		}
	}
}
