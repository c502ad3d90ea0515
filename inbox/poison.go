package inbox

import (
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

// Metadata of a message in a poison queue. The first four are those of Watermill.
const (
	reasonPoisoned     = "reason_poisoned"
	topicPoisoned      = "topic_poisoned"
	handlerPoisoned    = "handler_poisoned"
	subscriberPoisoned = "subscriber_poisoned"
	consumerPoisoned   = "consumer_poisoned"
	poisonedAt         = "poisoned_at" // RFC 3339, UTC
)

// natsMsgID names a message for a JetStream stream. If the poison queue, or the topic of a released
// message, is in the stream that the message came from, the stream would drop it as a duplicate.
const natsMsgID = "Nats-Msg-Id"

// poisonQueue is Watermill's PoisonQueue with Final as its filter. It sends a copy of the message.
// If the copy cannot be sent, the message itself is unchanged.
type poisonQueue struct {
	pub      message.Publisher
	topic    string
	consumer string
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
		delete(poisoned.Metadata, natsMsgID)
		poisoned.Metadata.Set(reasonPoisoned, err.Error())
		poisoned.Metadata.Set(topicPoisoned, message.SubscribeTopicFromCtx(ctx))
		poisoned.Metadata.Set(handlerPoisoned, handlerNameFromCtx(ctx))
		poisoned.Metadata.Set(subscriberPoisoned, message.SubscriberNameFromCtx(ctx))
		poisoned.Metadata.Set(consumerPoisoned, p.consumer)
		poisoned.Metadata.Set(poisonedAt, time.Now().UTC().Format(time.RFC3339))
		if perr := p.pub.Publish(p.topic, poisoned); perr != nil {
			return nil, errors.Join(err, fmt.Errorf("inbox: send to the poison queue %q: %w", p.topic, perr))
		}
		return nil, nil
	}
}
