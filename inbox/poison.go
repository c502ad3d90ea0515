package inbox

import (
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"
)

// poisonQueue is Watermill's PoisonQueue with Final as its filter. It sends a copy of the message.
// If the copy cannot be sent, the message itself is unchanged.
type poisonQueue struct {
	pub   message.Publisher
	topic string
}

func (p poisonQueue) middleware(h message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		out, err := h(msg)
		if !Final(err) {
			return out, err
		}
		ctx := msg.Context()
		poisoned := msg.Copy()
		poisoned.SetContext(ctx)
		poisoned.Metadata.Set(reasonPoisoned, err.Error())
		poisoned.Metadata.Set("topic_poisoned", message.SubscribeTopicFromCtx(ctx))
		poisoned.Metadata.Set("handler_poisoned", message.HandlerNameFromCtx(ctx))
		poisoned.Metadata.Set("subscriber_poisoned", message.SubscriberNameFromCtx(ctx))
		if perr := p.pub.Publish(p.topic, poisoned); perr != nil {
			return nil, errors.Join(err, fmt.Errorf("inbox: send to the poison queue %q: %w", p.topic, perr))
		}
		return nil, nil
	}
}
