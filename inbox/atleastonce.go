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
// and its mark are not written together. The handler runs again after a crash between the two,
// after a lost lease, and when the store has lost the mark. Use an Inbox where the effects are in
// its database.
//
// Make one with NewAtLeastOnce; it is safe for use by several goroutines.
type AtLeastOnce struct {
	engine *engine.AtLeastOnce
	from   translation
	out    producer
}

// AtLeastOnceConfig configures an AtLeastOnce. Consumer and Runner are required. A field that
// Config has too means the same here.
type AtLeastOnceConfig struct {
	Consumer string
	// Runner holds the lease. Its Config.TTL must be longer than the time for which the broker can
	// deliver a message.
	Runner *once.Runner
	// Publisher publishes the messages that a handler returns, before the event is marked as done.
	// The publisher of the broker is enough. When the handler runs again, they are published again.
	// Nil: a handler that returns messages fails with ErrProducedNeedsOutbox.
	Publisher message.Publisher

	Handler  func(msg *message.Message) string
	EventID  func(msg *message.Message) (string, error)
	Tenant   func(msg *message.Message) string
	Observer *Observer
	Tracer   *Tracer
	Logger   *slog.Logger

	// MaxAttempts and MinAge say when a message is given up, as in Config: its handler has run
	// MaxAttempts times, and the first run was MinAge ago. Then Middleware returns ErrDead, for the
	// poison queue of Chain, and the store forgets the attempts: a message that is delivered again
	// has fresh ones. A run that ended with the process counts. A delivery that only waited for
	// another copy does not. Negative: without limit, at any age.
	MaxAttempts int
	MinAge      time.Duration
	// Classifier, RetryPause and MaxRetryPause are those of Config. A message whose event another
	// copy holds waits for the lease of that copy, at most MaxRetryPause, before it is rejected.
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
		Consumer: cfg.Consumer, Runner: cfg.Runner, EventID: from.id, Tenant: from.tenantOf,
		Observer: cfg.Observer, Tracer: cfg.Tracer, Logger: cfg.Logger,
		MaxAttempts: cfg.MaxAttempts, MinAge: cfg.MinAge, Classifier: cfg.Classifier,
		RetryPause: cfg.RetryPause, MaxRetryPause: cfg.MaxRetryPause,
	})
	if err := errors.Join(err, nilPublisher); err != nil {
		return nil, err
	}
	return &AtLeastOnce{
		engine: e, from: from, out: producer{publisher: cfg.Publisher, observer: cfg.Observer},
	}, nil
}

// Middleware runs the handler of a message unless its event is done. Put it where Chain puts an
// Inbox. The context of the message ends when the lease is lost, with the cause once.ErrLeaseLost.
// The handler should stop then. After a failure Middleware pauses before it returns, as that of an
// Inbox does.
//
// Its errors are:
//
//   - the errors of the handler;
//   - ErrDead when the handler has failed too often, or with core.Permanent;
//   - ErrInvalidMessage;
//   - ErrInProgress, which wraps once.ErrInProgress, while another copy is being processed;
//   - once.ErrStore when the store did not answer, and the handler was not run.
func (a *AtLeastOnce) Middleware(h message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		ctx := msg.Context()
		defer msg.SetContext(ctx)
		came := arrived(a.from.message(msg), a.engine.Event)
		res := a.engine.Process(ctx, came.msg, func(ctx context.Context, _ engine.Message) error {
			msg.SetContext(ctx)
			produced, err := h(msg)
			if err != nil {
				return err
			}
			return a.out.publish(ctx, came, msg, produced)
		})
		sleep(ctx, res.After)
		return nil, res.Err
	}
}

// returnsDead tells Chain that Middleware returns dead messages as errors.
func (a *AtLeastOnce) returnsDead() bool { return true }
