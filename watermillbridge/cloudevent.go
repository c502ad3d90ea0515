package watermillbridge

import (
	"bytes"
	"context"
	"maps"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/cloudevents"
)

// NewCloudEvent returns the message of a delivery as a CloudEvent. A Publisher sends it if
// Config.CloudEvents is set. It has the metadata of NewMessage, so that inboxes and
// EventFromMessage work as before, and the headers that m writes. Metadata content-type is the
// payload's. In structured mode the payload is the JSON document. Headers of the event that look
// like attributes of any binding are left out, because m writes these: set extensions in
// Mapper.Edit. An error of an event that breaks a rule of CloudEvents wraps cloudevents.ErrInvalid.
func NewCloudEvent(ctx context.Context, d core.Delivery, m *cloudevents.Mapper) (*message.Message, error) {
	ce, err := m.Message(d)
	if err != nil {
		return nil, err
	}
	body := ce.Body
	if m.Mode == cloudevents.ModeBinary {
		body = bytes.Clone(body) // it shares memory with the delivery
	}
	d.Payload = nil
	msg := NewMessage(ctx, d)
	msg.Payload = body
	maps.DeleteFunc(msg.Metadata, func(name, _ string) bool { return m.Collides(name) })
	if m.Mode == cloudevents.ModeStructured {
		msg.Metadata[core.HeaderContentType] = ce.ContentType()
	}
	maps.Copy(msg.Metadata, ce.Headers)
	return msg, nil
}
