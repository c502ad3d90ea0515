package inbox

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/ormoutbox/ormoutbox/core"
	engine "github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/once"
)

// AtLeastOnce deduplicates messages without a transaction, by a lease of package once: in Redis
// (module inbox/redisonce), or in a database that is not that of the effects. Copies are not
// processed at the same time, nor after the first was marked as done. But the effects of a handler
// and its mark are two things: a crash between them, a lease that is lost, a store that forgets run
// the handler again. Use an Inbox where the effects are in its database.
//
// Make one with NewAtLeastOnce; it is safe for use by several goroutines.
type AtLeastOnce struct {
	engine *engine.AtLeastOnce
	from   translation
	out    producer
}

// AtLeastOnceConfig configures an AtLeastOnce. Consumer and Runner are required. The fields that
// Config has too mean the same.
type AtLeastOnceConfig struct {
	Consumer string
	// Runner holds the lease. Its Config.TTL must be longer than the broker can deliver a message.
	Runner *once.Runner
	// Publisher takes the messages that a handler returns, before its event is marked as done: the
	// broker's own will do, and they are published again when the handler runs again. Nil: such a
	// handler fails with ErrProducedNeedsOutbox.
	Publisher message.Publisher

	Handler  func(msg *message.Message) string
	EventID  func(msg *message.Message) (string, error)
	Tenant   func(msg *message.Message) string
	Observer *Observer
	Logger   *slog.Logger

	// MaxAttempts and MinAge say when a message is given up, as in Config: it has been run so
	// often, and the first time so long ago. Then Middleware returns ErrDead, for the poison
	// queue of Chain, and nothing is kept: a message that is delivered again has fresh attempts. A
	// run that ended with the process counts; one that only waited for another copy never does.
	// Negative: without limit, at any age.
	MaxAttempts int
	MinAge      time.Duration
	// Classifier, RetryPause and MaxRetryPause are those of Config. A message that another copy
	// holds is held for as long as its lease lasts, at most MaxRetryPause, before it is rejected.
	Classifier    func(error) core.Class
	RetryPause    time.Duration
	MaxRetryPause time.Duration
}

// NewAtLeastOnce returns an AtLeastOnce, or every problem of cfg at once.
func NewAtLeastOnce(cfg AtLeastOnceConfig) (*AtLeastOnce, error) {
	var nilPublisher error
	if cfg.Publisher != nil && isNil(cfg.Publisher) {
		nilPublisher = errors.New("inbox: AtLeastOnceConfig.Publisher is a nil pointer")
	}
	from := translation{handler: cfg.Handler, eventID: cfg.EventID, tenant: cfg.Tenant}.withDefaults()
	e, err := engine.NewAtLeastOnce(engine.AtLeastOnceConfig{
		Consumer: cfg.Consumer, Runner: cfg.Runner, EventID: from.id, Observer: cfg.Observer, Logger: cfg.Logger,
		MaxAttempts: cfg.MaxAttempts, MinAge: cfg.MinAge, Classifier: cfg.Classifier,
		RetryPause: cfg.RetryPause, MaxRetryPause: cfg.MaxRetryPause,
	})
	if err := errors.Join(err, nilPublisher); err != nil {
		return nil, err
	}
	return &AtLeastOnce{
		engine: e, from: from, out: producer{publisher: cfg.Publisher, observer: cfg.Observer, event: e.Event},
	}, nil
}

// Middleware runs the handler of a message unless its event is done. Put it where Chain puts an
// Inbox. The context of the message ends when the lease is lost (the cause is once.ErrLeaseLost):
// the handler should stop then. After a failure it pauses before it returns, as that of an Inbox
// does.
//
// Errors: those of the handler; ErrDead when it has failed too often, or with core.Permanent;
// ErrInvalidMessage; ErrInProgress, which wraps once.ErrInProgress, while another copy is being
// processed; and once.ErrStore when the store cannot be asked, and the handler was not run.
func (a *AtLeastOnce) Middleware(h message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		ctx := msg.Context()
		defer msg.SetContext(ctx)
		res := a.engine.Process(ctx, a.from.message(msg), func(ctx context.Context, m engine.Message) error {
			msg.SetContext(ctx)
			produced, err := h(msg)
			if err != nil {
				return err
			}
			return a.out.publish(ctx, m, msg, produced)
		})
		sleep(ctx, res.After)
		return nil, res.Err
	}
}

// returnsDead is for Chain.
func (a *AtLeastOnce) returnsDead() bool { return true }
