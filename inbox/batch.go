package inbox

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/ormoutbox/ormoutbox/core"
	engine "github.com/ormoutbox/ormoutbox/core/inbox"
)

// ProcessBatch runs fn once, in one transaction, with those messages that were not processed
// before, in their order. If there are none, it does not run fn. The contexts of the messages and
// ctx carry the transaction. All messages must be for one handler (Config.Handler).
//
// When fn or the commit fails, the transaction of the batch is rolled back, and each message is
// processed by itself: fn runs with one message. So one bad message does not hold up the others,
// and only its own attempts are counted.
//
// A panic of fn is an error of its messages, ErrPanicked. It counts as a failed attempt of the
// message whose own run panics.
//
// errs has an entry for each message, as Middleware would return it. Acknowledge the messages whose
// entry is nil, and no other.
func (in *Inbox) ProcessBatch(ctx context.Context, msgs []*message.Message,
	fn func(ctx context.Context, fresh []*message.Message) error,
) (errs []error) {
	list := make([]engine.Message, len(msgs))
	for n, msg := range msgs {
		list[n] = in.from.message(msg)
	}
	results := in.engine.ProcessBatch(ctx, list, func(ctx context.Context, _ core.Tx, fresh []engine.Message) error {
		raw := make([]*message.Message, len(fresh))
		for n, m := range fresh {
			msg, _ := m.Raw.(*message.Message) // as ProcessBatch set it
			defer msg.SetContext(msg.Context())
			msg.SetContext(ctx)
			raw[n] = msg
		}
		return fn(ctx, raw)
	})
	errs = make([]error, len(results))
	var wait time.Duration
	for n, r := range results {
		errs[n], wait = in.answer(r), max(wait, r.After)
	}
	sleep(ctx, wait)
	return errs
}
