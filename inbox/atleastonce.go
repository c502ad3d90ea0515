package inbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/ormoutbox/ormoutbox/core/once"
)

// AtLeastOnce deduplicates messages without a transaction, by a lease of package once: in Redis (module inbox/redisonce), or in a database that
// is not that of the effects. Copies are not processed at the same time, nor after the first was marked as done. But the effects of a
// handler and its mark are two things: a crash between them, a lease that is lost, a store that forgets run the handler again. Use an Inbox
// where the effects are in its database.
//
// Make one with NewAtLeastOnce; it is safe for use by several goroutines.
type AtLeastOnce struct {
	in     *Inbox // for the identity of messages and the observer
	runner *once.Runner
}

// AtLeastOnceConfig configures an AtLeastOnce. Consumer and Runner are required. The fields that Config has too mean the same.
type AtLeastOnceConfig struct {
	Consumer string
	// Runner holds the lease. Its Config.TTL must be longer than the broker can deliver a message.
	Runner *once.Runner
	// Publisher takes the messages that a handler returns, before its event is marked as done: the broker's own will do, and they are
	// published again when the handler runs again. Nil: such a handler fails with ErrProducedNeedsOutbox.
	Publisher message.Publisher

	Handler  func(msg *message.Message) string
	EventID  func(msg *message.Message) (string, error)
	Tenant   func(msg *message.Message) string
	Observer *Observer
	Logger   *slog.Logger
}

// NewAtLeastOnce returns an AtLeastOnce, or every problem of cfg at once.
func NewAtLeastOnce(cfg AtLeastOnceConfig) (*AtLeastOnce, error) {
	var problems []error
	if cfg.Consumer == "" {
		problems = append(problems, errors.New("inbox: AtLeastOnceConfig.Consumer is empty: choose a name and keep it"))
	}
	if cfg.Runner == nil {
		problems = append(problems, errors.New("inbox: AtLeastOnceConfig.Runner is nil: use once.New"))
	}
	if cfg.Publisher != nil && isNil(cfg.Publisher) {
		problems = append(problems, errors.New("inbox: AtLeastOnceConfig.Publisher is a nil pointer"))
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	c := Config{
		Consumer: cfg.Consumer, Publisher: cfg.Publisher, Handler: cfg.Handler, EventID: cfg.EventID, Tenant: cfg.Tenant,
		Observer: cfg.Observer, Logger: cfg.Logger,
	}.withDefaults()
	return &AtLeastOnce{in: newInbox(c), runner: cfg.Runner}, nil
}

// Middleware runs the handler of a message unless its event is done. Put it where Chain puts an Inbox. The context of the message ends when the lease
// is lost (the cause is once.ErrLeaseLost): the handler should stop then.
//
// Errors: those of the handler; ErrInvalidMessage; ErrInProgress, which wraps once.ErrInProgress, while another copy is being processed; and
// once.ErrStore when the store cannot be asked, and the handler was not run.
func (a *AtLeastOnce) Middleware(h message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		ctx := msg.Context()
		defer msg.SetContext(ctx)
		e, err := a.in.Event(msg)
		if err != nil {
			a.in.failed(Info{Event: e, Err: err})
			return nil, err
		}
		d := a.in.delivery(e, msg)
		key := once.Key{Scope: once.Scope("inbox", e.Consumer, e.Handler), Tenant: e.Tenant, ID: e.EventID}
		_, replayed, err := a.runner.Do(ctx, key, once.Fingerprint{}, func(ctx context.Context) (once.Result, error) {
			msg.SetContext(ctx)
			produced, err := h(msg)
			if err != nil {
				return once.Result{}, err
			}
			return once.Result{}, a.in.produce(ctx, d, produced)
		})
		return nil, a.settle(d, replayed, err)
	}
}

func (a *AtLeastOnce) settle(d delivery, replayed bool, err error) error {
	switch {
	case err == nil && replayed:
		a.in.obs.Duplicate(d.told(0, nil))
	case err == nil:
		a.in.obs.Processed(d.told(0, nil))
	case errors.Is(err, once.ErrAlreadyDone): // by another copy, when this one had lost its lease
		a.in.obs.Duplicate(d.told(0, nil))
		return nil
	case errors.Is(err, once.ErrInProgress):
		err = fmt.Errorf("%w (try again in %s): %w", ErrInProgress, once.RetryAfter(err).Round(time.Millisecond), err)
		a.in.obs.InProgress(d.told(0, err))
	case errors.Is(err, once.ErrInvalidKey):
		err = fmt.Errorf("%w: %w", ErrInvalidMessage, err)
		a.in.failed(d.told(0, err))
	default:
		a.in.failed(d.told(0, err))
	}
	return err
}
