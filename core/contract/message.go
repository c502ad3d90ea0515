package contract

import (
	"cmp"
	"mime"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/cloudevents"
)

// Message is a message as a consumer gets it. Headers come from the bridges (core.HeaderEventType
// and so on), or from a CloudEvent, in binary or structured mode.
//
//	contract.Message{Headers: msg.Metadata, Payload: msg.Payload} // Watermill
//	contract.Message{Headers: msg.Headers, Payload: msg.Payload}  // core/inbox
type Message struct {
	Headers map[string]string
	Payload []byte
}

// MessageOf returns the message of a delivery, for a core.Publisher that handles events in this
// process.
func MessageOf(d core.Delivery) Message { return Message{Headers: d.Metadata(), Payload: d.Payload} }

// unwrap finds the type and the data. A header of our own wins over an attribute of CloudEvents.
func (m Message) unwrap() (got received, contentType string, err error) {
	got = received{eventType: m.Headers[core.HeaderEventType], payload: m.Payload}
	contentType = m.Headers[core.HeaderContentType]
	contentType = cmp.Or(contentType, m.Headers["Content-Type"])
	ce := cloudevents.Message{Headers: m.Headers, Body: m.Payload}
	if t, _, err := mime.ParseMediaType(contentType); err == nil && t == "application/cloudevents+json" {
		e, err := cloudevents.HTTP.Decode(ce)
		if err != nil {
			return got, contentType, err
		}
		got.payload, contentType = e.Data, e.DataContentType
		got.eventType = cmp.Or(got.eventType, e.Type)
		return got, contentType, nil
	}
	if got.eventType == "" {
		attrs := ce.Attributes()
		got.eventType = attrs["type"]
		contentType = cmp.Or(contentType, attrs["datacontenttype"])
	}
	return got, contentType, nil
}
