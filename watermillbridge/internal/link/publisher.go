package link

import (
	"context"
	"errors"
	"math"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/cloudevents"
	"github.com/ormoutbox/ormoutbox/watermillbridge"
)

// Inner is the message.Publisher of a bridge.
type Inner interface {
	message.Publisher
	Waiter
}

// NewPublisher returns the Publisher of a bridge to what decorate, which may be nil, makes of p.
//
// Before decorators see a message, its context gets a new value under key: track makes it, and the
// receipt is read from it. So the receipt is kept if a decorator sends a copy with the message's
// context. A nil track leaves contexts alone.
func NewPublisher(bridge string, p Inner, cfg watermillbridge.Config,
	decorate func(message.Publisher) message.Publisher, key any, track func() any,
) (*watermillbridge.Publisher, error) {
	var outer message.Publisher = p
	if decorate != nil {
		if outer = decorate(p); outer == nil {
			return nil, errors.New(bridge + ": Config.Decorate returned nil")
		}
	}
	return watermillbridge.NewPublisher(decorated{outer, p, key, track}, cfg)
}

type decorated struct {
	message.Publisher
	Waiter
	key   any
	track func() any
}

// Publish implements message.Publisher.
func (d decorated) Publish(topic string, msgs ...*message.Message) error {
	if d.track != nil {
		for _, msg := range msgs {
			msg.SetContext(context.WithValue(msg.Context(), d.key, d.track()))
		}
	}
	return d.Publisher.Publish(topic, msgs...)
}

// Each publishes messages one after the other, up to the first error.
func Each(topic string, msgs []*message.Message, publish func(topic string, msg *message.Message) error) error {
	for _, msg := range msgs {
		if err := publish(topic, msg); err != nil {
			return err
		}
	}
	return nil
}

// Bound bounds the messages of a broker that takes limit bytes, unless the configuration does it:
// by check, or by the size of the payload if the form of its messages is not known.
func Bound(cfg *watermillbridge.Config, limit int, check func(core.Event) error) {
	switch {
	case cfg.CheckSize != nil:
	case cfg.Marshal == nil:
		cfg.CheckSize = check
	case cfg.MaxPayload == 0:
		cfg.MaxPayload = limit
	}
}

// Largest returns the largest message that an event can have, with later attempts and as a replay,
// and the bytes of its payload that are not in it. rowID is the name under which the message has the
// row id too, or empty. mapper may be nil.
func Largest(e core.Event, rowID string, mapper *cloudevents.Mapper) (msg *message.Message, payload int, err error) {
	id := core.RowID{1}
	d := core.Delivery{Event: e, RowID: id, KeySeq: math.MaxInt64, Attempt: math.MaxInt32, ReplayOf: id}
	if mapper != nil {
		msg, err = watermillbridge.NewCloudEvent(context.Background(), d, mapper)
	} else {
		payload, d.Payload = len(e.Payload), nil
		msg = watermillbridge.NewMessage(context.Background(), d)
	}
	if err == nil && rowID != "" {
		msg.Metadata.Set(rowID, id.String())
	}
	return msg, payload, err
}
