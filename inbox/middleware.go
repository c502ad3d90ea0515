package inbox

import (
	"context"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/ormoutbox/ormoutbox/core"
	engine "github.com/ormoutbox/ormoutbox/core/inbox"
)

// Middleware makes a handler of a Watermill Router idempotent.
//
// The handler finds its transaction in the message's context, by FromContext of its adapter or
// core.TxFromContext, and does all its work there. The messages that it returns are written to the
// outbox in the same transaction (Config.Publisher), under the publish topic of the Router. So the
// Router has nothing left to publish. The returned messages carry the correlation id of the
// message, with or without Watermill's CorrelationID. The handler must not acknowledge the message
// itself, nor may InstantAck be inside or outside: see ErrAcknowledged.
//
// The handler may run several times for one delivery. A transaction that failed only because of
// others (core.Retryable) is run again as a whole, at most ten times and for twenty seconds.
//
// After a failure the middleware pauses (Config.RetryPause) before it returns, because most brokers
// deliver a rejected message again at once.
//
// After the rollback the middleware returns the errors of the handler and the database, so that the
// Router rejects the message. Its own errors are ErrDead, ErrInvalidMessage, ErrInProgress,
// ErrProducedNeedsOutbox, ErrPoisonInside, ErrAcknowledged, ErrInTransaction and
// ErrTransactionEnded. A panic of the handler rolls back and counts as a failed attempt, and then
// goes on.
func (in *Inbox) Middleware(h message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		ctx := msg.Context()
		defer msg.SetContext(ctx) // middleware outside gets no context of an ended transaction
		a := arrived(in.from.message(msg), in.engine.Event)
		res := in.engine.Process(ctx, a.msg,
			func(ctx context.Context, _ core.Tx, _ engine.Message) error {
				msg.SetContext(ctx)
				before := msg.Metadata[reasonPoisoned]
				produced, err := h(msg)
				if err != nil {
					return err
				}
				if reason := msg.Metadata[reasonPoisoned]; reason != before {
					return fmt.Errorf("%w: %s", ErrPoisonInside, reason)
				}
				return in.out.publish(ctx, a, msg, produced)
			})
		sleep(ctx, res.After)
		return nil, in.answer(res)
	}
}
