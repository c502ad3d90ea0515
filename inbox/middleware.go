package inbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/ormoutbox/ormoutbox/core"
)

// reasonPoisoned is the metadata that Watermill's poison queue sets on a message it takes.
const reasonPoisoned = "reason_poisoned"

// Middleware makes a handler of a Watermill Router idempotent.
//
// The handler finds its transaction in the message's context, by FromContext of its adapter or
// core.TxFromContext, and does all its work there. The messages that it returns are written to the
// outbox in the same transaction (Config.Publisher), under the publish topic of the Router, so
// nothing is left for the Router to publish; they carry the correlation id of the message, whether
// Watermill's CorrelationID is outside, inside or not there. The handler must not acknowledge the
// message itself.
//
// It may run several times for one delivery: a transaction that failed only because of others
// (core.Retryable) is run again as a whole, at most ten times and for twenty seconds.
//
// After a failure it pauses (Config.RetryPause) before it returns, because most brokers deliver a
// rejected message again at once.
//
// Errors: those of the handler and the database, after the rollback, so that the Router rejects the
// message; ErrParked, ErrInvalidMessage, ErrInProgress, ErrProducedNeedsOutbox, ErrPoisonInside,
// ErrInTransaction, ErrTransactionEnded. A panic of the handler rolls back, counts as a failed
// attempt, and goes on.
func (in *Inbox) Middleware(h message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		ctx := msg.Context()
		defer msg.SetContext(ctx) // a transaction that has ended is no use to anybody outside
		e, err := in.Event(msg)
		if err != nil {
			return nil, in.failed(ctx, Info{Event: e, Err: err})
		}
		d := in.delivery(e, msg)
		wait, err := in.run(ctx, d, func(ctx context.Context, _ core.Tx) error {
			msg.SetContext(ctx)
			before := msg.Metadata[reasonPoisoned]
			produced, err := h(msg)
			if err != nil {
				return err
			}
			if reason := msg.Metadata[reasonPoisoned]; reason != before {
				return fmt.Errorf("%w: %s", ErrPoisonInside, reason)
			}
			return in.produce(ctx, d, msg, produced)
		})
		sleep(ctx, wait)
		return nil, err
	}
}

// correlationID is the metadata under which Watermill's CorrelationID keeps it.
const correlationID = "correlation_id"

// produce writes what a handler returned to the outbox. It does what the middleware CorrelationID
// does, which gets nothing to see when it is outside of the inbox.
func (in *Inbox) produce(ctx context.Context, d delivery, consumed *message.Message,
	produced []*message.Message,
) error {
	if len(produced) == 0 {
		return nil
	}
	topic := message.PublishTopicFromCtx(ctx)
	switch {
	case in.cfg.Publisher == nil:
		return ErrProducedNeedsOutbox
	case topic == "":
		return errors.New("inbox: the handler returned messages, and has no topic to publish to: add it with " +
			"AddHandler of the Router")
	}
	for _, p := range produced {
		if p == nil {
			return errors.New("inbox: the handler returned a nil message")
		}
		p.SetContext(ctx)
		if id := consumed.Metadata[correlationID]; id != "" && p.Metadata[correlationID] == "" {
			if p.Metadata == nil {
				p.Metadata = message.Metadata{}
			}
			p.Metadata[correlationID] = id
		}
	}
	if err := in.cfg.Publisher.Publish(topic, produced...); err != nil {
		return fmt.Errorf("inbox: write produced messages to the outbox: %w", err)
	}
	in.obs.Produced(d.told(0, nil), len(produced))
	return nil
}
