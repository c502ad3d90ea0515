package contract

import (
	"maps"
	"mime"
	"strconv"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/cloudevents"
)

// Message is a message as a consumer gets it. Headers are those of the bridges
// (core.HeaderEventType and so on), or those of a CloudEvent, in binary or structured mode.
//
//	contract.Message{Headers: msg.Metadata, Payload: msg.Payload} // Watermill
//	contract.Message{Headers: msg.Headers, Payload: msg.Payload}  // core/inbox
type Message struct {
	Headers map[string]string
	Payload []byte
}

// MessageOf returns the message of a delivery, for a core.Publisher that handles events in this
// process.
func MessageOf(d core.Delivery) Message {
	h := make(map[string]string, len(d.Headers)+12)
	maps.Copy(h, d.Headers)
	text := func(name, value string) {
		if value != "" {
			h[name] = value
		}
	}
	number := func(name string, n int64) {
		if n != 0 {
			h[name] = strconv.FormatInt(n, 10)
		}
	}
	text(core.HeaderEventID, d.ID)
	text(core.HeaderEventType, d.Type)
	number(core.HeaderSchemaVersion, int64(d.SchemaVersion))
	text(core.HeaderAggregateType, d.AggregateType)
	text(core.HeaderAggregateID, d.AggregateID)
	number(core.HeaderAggregateVersion, d.AggregateVersion)
	text(core.HeaderTenantID, d.TenantID)
	text(core.HeaderPartitionKey, d.Key)
	number(core.HeaderKeySeq, d.KeySeq)
	text(core.HeaderContentType, d.ContentType)
	if !d.OccurredAt.IsZero() {
		h[core.HeaderOccurredAt] = d.OccurredAt.UTC().Format(time.RFC3339Nano)
	}
	return Message{Headers: h, Payload: d.Payload}
}

// unwrap finds the type and the data. A header of our own wins over an attribute of CloudEvents.
func (m Message) unwrap() (got received, contentType string, err error) {
	got = received{eventType: m.Headers[core.HeaderEventType], payload: m.Payload}
	contentType = m.Headers[core.HeaderContentType]
	if contentType == "" {
		contentType = m.Headers["Content-Type"]
	}
	ce := cloudevents.Message{Headers: m.Headers, Body: m.Payload}
	if t, _, err := mime.ParseMediaType(contentType); err == nil && t == "application/cloudevents+json" {
		e, err := cloudevents.HTTP.Decode(ce)
		if err != nil {
			return got, contentType, err
		}
		got.payload, contentType = e.Data, e.DataContentType
		if got.eventType == "" {
			got.eventType = e.Type
		}
		return got, contentType, nil
	}
	if got.eventType == "" {
		attrs := cloudevents.Attributes(ce)
		got.eventType = attrs["type"]
		if contentType == "" {
			contentType = attrs["datacontenttype"]
		}
	}
	return got, contentType, nil
}
