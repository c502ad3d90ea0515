package amqpbridge_test

import (
	"context"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/watermillbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/amqpbridge"
)

func TestTheSizeLimitIsTheBrokers(t *testing.T) {
	t.Parallel()
	for limit, want := range map[int]int{0: 16 << 20, 1000: 1000} {
		p, err := amqpbridge.NewPublisher(amqpbridge.Config{
			AMQP:            amqpbridge.QueueConfig(nowhere),
			MaxMessageBytes: limit,
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.CheckSize(core.Event{Payload: make([]byte, want)}); err != nil {
			t.Errorf("%d bytes: %v", want, err)
		}
		err = p.CheckSize(core.Event{Payload: make([]byte, want+1)})
		if err == nil || !strings.Contains(err.Error(), "Config.MaxMessageBytes") ||
			!strings.Contains(err.Error(), "max_message_size") {
			t.Errorf("err = %v, want one that names the limit and what to change", err)
		}
	}
	if _, err := amqpbridge.NewPublisher(amqpbridge.Config{
		AMQP:            amqpbridge.QueueConfig(nowhere),
		MaxMessageBytes: -1,
	}); err == nil {
		t.Error("a negative limit is accepted")
	}
}

func TestADecoratorThatReturnsNothingIsRefused(t *testing.T) {
	t.Parallel()
	_, err := amqpbridge.NewPublisher(amqpbridge.Config{
		AMQP: amqpbridge.QueueConfig(nowhere), Decorate: func(message.Publisher) message.Publisher { return nil },
	})
	if err == nil || !strings.Contains(err.Error(), "Config.Decorate") {
		t.Errorf("err = %v, want one that names Config.Decorate", err)
	}
}

// A decorator sees each message, and the class of an error stays the same.
func TestADecoratedPublisherKeepsClasses(t *testing.T) {
	t.Parallel()
	var seen []string
	p, err := amqpbridge.NewPublisher(amqpbridge.Config{
		AMQP: amqpbridge.QueueConfig(nowhere),
		Decorate: func(p message.Publisher) message.Publisher {
			return decorated{p, func(msg *message.Message) { seen = append(seen, msg.UUID) }}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	err = p.MessagePublisher(0).Publish("poison", message.NewMessage("u", nil))
	if class, _ := core.ClassOf(err); class != core.ClassUnavailable || len(seen) != 1 || seen[0] != "u" {
		t.Errorf("err = %v, class %v, the decorator saw %q; want unavailable and u", err, class, seen)
	}
}

type decorated struct {
	message.Publisher
	see func(*message.Message)
}

func (d decorated) Publish(topic string, messages ...*message.Message) error {
	for _, msg := range messages {
		d.see(msg)
	}
	return d.Publisher.Publish(topic, messages...)
}

// The size of a message of the user's own Marshal is not known. Without a limit for it, the payload
// itself must fit.
func TestTheSizeLimitWithAMarshalOfOnesOwn(t *testing.T) {
	t.Parallel()
	for said, limit := range map[int]int{0: 5000, 3000: 3000, 20 << 20: 20 << 20} {
		b := watermillbridge.Config{
			MaxPayload: said,
			Marshal: func(context.Context, core.Delivery) (*message.Message, error) {
				return message.NewMessage("id", nil), nil
			},
		}
		p, err := amqpbridge.NewPublisher(amqpbridge.Config{
			AMQP:            amqpbridge.QueueConfig(nowhere),
			MaxMessageBytes: 5000, Bridge: b,
		})
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
