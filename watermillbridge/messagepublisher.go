package watermillbridge

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/ormoutbox/ormoutbox/core"
)

const defaultMessageTimeout = 5 * time.Second

// MessagePublisher returns p as a message.Publisher of Watermill. Use it for a poison queue, for
// replies, and for other messages beside the outbox, with the same connection and the same safe
// settings. Messages are sent unchanged: Config.Topic, Marshal and Receipt are not used.
//
// Publish returns nil if the broker has all messages. It sends one after another and stops at the
// first error. core.ClassOf returns the class of an error. Each message may take timeout (0: 5 s),
// or until its context ends. ErrNoAnswer means that its outcome is unknown then. It is safe for use
// by several goroutines. Its Close does nothing: close p.
func (p *Publisher) MessagePublisher(timeout time.Duration) message.Publisher {
	if timeout <= 0 {
		timeout = defaultMessageTimeout
	}
	return &messagePublisher{p: p, timeout: timeout}
}

type messagePublisher struct {
	p       *Publisher
	timeout time.Duration
}

// Publish implements message.Publisher.
func (m *messagePublisher) Publish(topic string, messages ...*message.Message) error {
	if topic == "" {
		return core.Permanent(errors.New("watermillbridge: no topic"))
	}
	for i, msg := range messages {
		if msg == nil {
			return core.Permanent(fmt.Errorf("watermillbridge: message %d is nil", i))
		}
		if err := m.publish(topic, msg); err != nil {
			return err
		}
	}
	return nil
}

func (m *messagePublisher) publish(topic string, msg *message.Message) error {
	ctx, cancel := context.WithTimeout(msg.Context(), m.timeout)
	defer cancel()
	if ctx.Err() != nil {
		return fmt.Errorf("watermillbridge: not published to %q: %w", topic, ended(ctx))
	}
	own := msg.Copy() // a call that is left behind still uses it
	own.Payload = bytes.Clone(msg.Payload)
	own.SetContext(ctx)
	t, err := m.p.enter(topic)
	if err != nil {
		return err
	}
	return m.p.call(ctx, t, core.Delivery{Event: core.Event{ID: msg.UUID}}, own, nil)
}

// Close implements message.Publisher.
func (m *messagePublisher) Close() error { return nil }
