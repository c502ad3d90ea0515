package amqpbridge

import (
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/ormoutbox/ormoutbox/core"
)

// Marshaler is Watermill's amqp.DefaultMarshaler for a subscriber that takes messages of every
// producer. QueueConfig, PubSubConfig and TopicConfig set it. Its messages equal
// DefaultMarshaler's. The zero value is ready to use, by several goroutines.
type Marshaler struct{ amqp.DefaultMarshaler }

// Unmarshal returns the message of a delivery. Headers that are text become metadata, and so do
// numbers without a fraction, booleans, times (RFC 3339) and bytes (base64), such as
// x-delivery-count of a quorum queue. Other headers, such as x-death of a dead letter exchange, are
// left out; DefaultMarshaler refuses a message with any of them, and the broker sends it again
// without end. Metadata content-type is the property of that name, unless there is a header. The
// zero delivery is an error: Watermill's subscriber reads it when the broker has cancelled its
// consumer. The subscriber then consumes anew.
func (m Marshaler) Unmarshal(d amqp091.Delivery) (*message.Message, error) {
	if d.Acknowledger == nil && d.DeliveryTag == 0 && len(d.Headers) == 0 && len(d.Body) == 0 {
		return nil, errors.New("amqpbridge: no delivery: the broker has cancelled the consumer, for example because " +
			"its queue was deleted")
	}
	headers := make(amqp091.Table, len(d.Headers)+1)
	if d.ContentType != "" {
		headers[core.HeaderContentType] = d.ContentType
	}
	for name, v := range d.Headers {
		if text, ok := headerText(v); ok {
			headers[name] = text
		}
	}
	d.Headers = headers
	return m.DefaultMarshaler.Unmarshal(d)
}

// headerText returns the text of a header as CloudEvents writes it.
func headerText(v any) (text string, ok bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case time.Time:
		return v.UTC().Format(time.RFC3339Nano), true
	case []byte:
		return base64.StdEncoding.EncodeToString(v), true
	case bool, int, int8, int16, int32, int64, uint8, uint16, uint32:
		return fmt.Sprint(v), true
	}
	return "", false
}
