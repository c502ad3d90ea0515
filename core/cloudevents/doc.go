// Package cloudevents writes and reads CloudEvents 1.0.2 in the messages of Kafka, AMQP, NATS and
// HTTP.
//
// A [Mapper] makes the CloudEvent of a [core.Delivery]; the bridges to Watermill take one in their
// configuration. [Binding.Decode] reads a CloudEvent that anybody sent. The package needs no
// broker: a [Message] has the headers and the body that a client library sends and receives.
//
//	m := &cloudevents.Mapper{Source: "https://shop.example/orders", Binding: cloudevents.Kafka}
//	msg, err := m.Message(delivery)
//	e, err := cloudevents.Kafka.Decode(cloudevents.Message{Headers: headers, Body: value})
//
// # Modes
//
// In binary mode, which is the default, the body is the event's data, and each attribute is a
// header. In structured mode the body is a JSON document with the attributes and the data. JSON
// data is a part of that document; other data is in it as base64, so that not a byte changes.
// Batches are not supported.
//
// # What each binding writes
//
//	         attribute id     content type of the data    values
//	Kafka    ce_id            header content-type         as they are
//	AMQP     cloudEvents:id   property content-type       as they are
//	NATS     ce-id            header ce-datacontenttype   percent-encoded
//	HTTP     ce-id            header Content-Type         percent-encoded
package cloudevents
