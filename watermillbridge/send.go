package watermillbridge

import (
	"context"
	"maps"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/ormoutbox/ormoutbox/core/inbox"
)

var _ inbox.Sender = (*Publisher)(nil)

// Send implements inbox.Sender: it sends a message that was parked back to its topic, as a
// MessagePublisher does. It ends with ctx, or after 5 s.
func (p *Publisher) Send(ctx context.Context, topic string, msg inbox.Message) error {
	m := message.NewMessage(msg.UUID, msg.Payload)
	m.Metadata = maps.Clone(msg.Headers)
	m.SetContext(ctx)
	return p.MessagePublisher(0).Publish(topic, m)
}
