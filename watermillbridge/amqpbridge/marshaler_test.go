package amqpbridge_test

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/ormoutbox/ormoutbox/watermillbridge/amqpbridge"
)

// Headers of every kind that RabbitMQ and other producers write become text, or are left out.
func TestUnmarshalTakesHeadersOfEveryKind(t *testing.T) {
	t.Parallel()
	d := amqp091.Delivery{ContentType: "text/plain", Body: []byte("b"), Headers: amqp091.Table{
		"text": "é", "x-delivery-count": int64(-3), "flag": true, "small": uint8(7), "bytes": []byte{0, 255},
		"at":      time.Date(2026, 5, 1, 12, 0, 0, 0, time.FixedZone("", 7200)),
		"x-death": []any{amqp091.Table{"count": int64(1)}}, "table": amqp091.Table{}, "fraction": 1.5, "none": nil,
	}}
	before := len(d.Headers)
	msg, err := amqpbridge.Marshaler{}.Unmarshal(d)
	if err != nil {
		t.Fatal(err)
	}
	want := message.Metadata{
		"text": "é", "x-delivery-count": "-3", "flag": "true", "small": "7", "bytes": "AP8=",
		"at": "2026-05-01T10:00:00Z", "content-type": "text/plain",
	}
	if !maps.Equal(msg.Metadata, want) || string(msg.Payload) != "b" || len(d.Headers) != before {
		t.Errorf("%q %q, want %q", msg.Metadata, msg.Payload, want)
	}
	d.Headers["content-type"] = "a/header"
	if msg, err := (amqpbridge.Marshaler{}).Unmarshal(d); err != nil || msg.Metadata["content-type"] != "a/header" {
		t.Errorf("%v, %v, want the header before the property", msg, err)
	}
}

// A message without headers and payload is a message. The end of a channel of deliveries is none.
func TestUnmarshalTellsAnEmptyMessageFromNone(t *testing.T) {
	t.Parallel()
	if msg, err := (amqpbridge.Marshaler{}).Unmarshal(amqp091.Delivery{DeliveryTag: 1}); err != nil {
		t.Errorf("an empty message: %v, %v", msg, err)
	}
	ended := make(chan amqp091.Delivery)
	close(ended)
	if msg, err := (amqpbridge.Marshaler{}).Unmarshal(<-ended); err == nil {
		t.Errorf("no delivery: %v", msg)
	}
}

func TestConfigsUseTheMarshaler(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]amqp.Config{
		"queue": amqpbridge.QueueConfig(nowhere), "pubsub": amqpbridge.PubSubConfig(nowhere, nil),
		"topic": amqpbridge.TopicConfig(nowhere, "e", "q"),
	} {
		msg := message.NewMessage("u", []byte("b"))
		msg.Metadata.Set("k", "v")
		sent, err := c.Marshaler.Marshal(msg)
		if err != nil {
			t.Fatal(err)
		}
		sent.Headers["x-delivery-count"] = int64(1)
		got, err := c.Marshaler.Unmarshal(amqp091.Delivery{Headers: sent.Headers, Body: sent.Body})
		if err != nil || got.UUID != "u" || got.Metadata["k"] != "v" || got.Metadata["x-delivery-count"] != "1" {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

func ExampleMarshaler_Unmarshal() {
	msg, err := amqpbridge.Marshaler{}.Unmarshal(amqp091.Delivery{
		ContentType: "application/json", Headers: amqp091.Table{"x-delivery-count": int64(2)},
	})
	fmt.Println(msg.Metadata["content-type"], msg.Metadata["x-delivery-count"], err)
	// Output: application/json 2 <nil>
}
