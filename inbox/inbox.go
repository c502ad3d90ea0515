package inbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/once/sqlonce"
)

// Inbox processes each event once. Make one with New; it is safe for use by several goroutines, and its zero value is not usable.
type Inbox struct {
	cfg Config
	obs Observer
}

// New returns an Inbox, or every problem of cfg at once.
func New(cfg Config) (*Inbox, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	return &Inbox{cfg: cfg, obs: cfg.Observer.withDefaults()}, nil
}

// Process runs fn in a transaction unless e was processed before, for consumers without Watermill; see Middleware for what happens then. e.Consumer is
// that of the Config, and e.Handler required. fn may run more than once: what it did in a transaction that failed is gone.
// Nil means that the event is done with: now, before, or because it is stale or, with ParkAndAck, parked.
func (in *Inbox) Process(ctx context.Context, e Event, fn func(ctx context.Context, tx core.Tx) error) error {
	e.Consumer = in.cfg.Consumer
	if err := e.Validate(); err != nil {
		err = fmt.Errorf("%w: %w", ErrInvalidMessage, err)
		in.failed(Info{Event: e, Err: err})
		return err
	}
	return in.run(ctx, delivery{info: Info{Event: e}, came: time.Now()}, fn)
}

// delivery is one message on its way through the inbox.
type delivery struct {
	info Info
	came time.Time
}

// told returns what an observer is told.
func (d delivery) told(attempt int, err error) Info {
	i := d.info
	i.Attempt, i.Err, i.Duration = attempt, err, time.Since(d.came)
	return i
}

// outcome is what one transaction came to.
type outcome struct {
	state   sqlonce.InboxState
	attempt int
	stale   bool
	ran     bool // the handler began
}

// errSeen rolls back a transaction in which there was nothing to do, which is cheaper than to commit it.
var errSeen = errors.New("inbox: seen before")

var errPanicked = errors.New("inbox: the handler panicked")

func (in *Inbox) run(ctx context.Context, d delivery, fn func(context.Context, core.Tx) error) error {
	if _, ok := core.TxFromContext(ctx); ok {
		in.failed(d.told(0, ErrInTransaction))
		return ErrInTransaction
	}
	if in.cached(ctx, d) {
		in.obs.Duplicate(d.told(0, nil))
		return nil
	}
	var o outcome
	returned := false
	defer func() {
		if !returned && o.ran { // it panics, and goes on doing so
			_ = in.fail(ctx, d, o, errPanicked)
		}
	}()
	err := once.RetryTx(ctx, in.cfg.Transactor, func(ctx context.Context, tx core.Tx) error {
		o = outcome{}
		tx.OnOutcome(func(core.Outcome) {}) // who waits for the outcome is told when the answer to COMMIT was lost
		return in.inTx(ctx, tx, d.info.Event, &o, fn)
	})
	returned = true
	return in.settle(ctx, d, o, err)
}

// inTx is the transaction of one event.
func (in *Inbox) inTx(ctx context.Context, tx core.Tx, e Event, o *outcome, fn func(context.Context, core.Tx) error) (err error) {
	if o.state, o.attempt, err = in.cfg.Store.Begin(ctx, tx, e); err != nil {
		return err
	}
	if o.state != sqlonce.InboxFresh {
		return errSeen
	}
	if slices.Contains(in.cfg.OnlyNewer, e.Handler) {
		newer, err := in.cfg.Store.Advance(ctx, tx, e)
		if err != nil {
			return err
		}
		if o.stale = !newer; o.stale {
			return nil
		}
	}
	o.ran = true
	return fn(ctx, tx)
}

// settle says what a transaction means for the message.
func (in *Inbox) settle(ctx context.Context, d delivery, o outcome, err error) error {
	if o.state != 0 && o.state != sqlonce.InboxFresh { // whatever became of the rollback
		return in.seen(ctx, d, o)
	}
	switch {
	case err == nil && o.stale:
		in.remember(ctx, d)
		in.obs.Stale(d.told(o.attempt, nil))
		return nil
	case err == nil:
		in.remember(ctx, d)
		in.obs.Processed(d.told(o.attempt, nil))
		return nil
	case !o.ran: // the database could not be reached, say
		in.failed(d.told(o.attempt, err))
		return err
	}
	return in.fail(ctx, d, o, err)
}

// seen says what a row that was there means for the message.
func (in *Inbox) seen(ctx context.Context, d delivery, o outcome) error {
	if o.state == sqlonce.InboxProcessed {
		in.remember(ctx, d)
		in.obs.Duplicate(d.told(o.attempt, nil))
		return nil
	}
	if o.state == sqlonce.InboxParked {
		return in.parked(d.told(o.attempt, fmt.Errorf("%w: Release lets it be processed again", ErrParked)))
	}
	in.obs.InProgress(d.told(o.attempt, ErrInProgress))
	return ErrInProgress
}

// recordTimeout bounds the transaction that records a failure, which goes on when the message's context has ended.
const recordTimeout = 10 * time.Second

// fail records that the handler failed, and returns what the message is answered with.
func (in *Inbox) fail(ctx context.Context, d delivery, o outcome, err error) error {
	if errors.Is(err, core.ErrCommitUnknown) || errors.Is(ctx.Err(), context.Canceled) { // it may be processed; it was cut short
		in.failed(d.told(o.attempt, err))
		return err
	}
	class, _ := core.ClassOf(err)
	f := sqlonce.InboxFailure{
		Event: d.info.Event, Code: code(err), Text: err.Error(),
		Free: core.Retryable(err) || class == core.ClassUnavailable || class == core.ClassKeyUnavailable,
		Park: class == core.ClassPermanent, MaxAttempts: max(in.cfg.MaxAttempts, 0),
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	state, attempts, recordErr := in.cfg.Store.Fail(ctx, f)
	switch {
	case recordErr != nil:
		err = errors.Join(err, fmt.Errorf("inbox: record the failure: %w", recordErr))
	case state == sqlonce.InboxProcessed: // by another copy, meanwhile
		in.remember(ctx, d)
		in.obs.Duplicate(d.told(attempts, nil))
		return nil
	case state == sqlonce.InboxParked:
		return in.parked(d.told(attempts, fmt.Errorf("%w (attempts: %d): %w", ErrParked, attempts, err)))
	default:
		o.attempt = attempts
	}
	in.failed(d.told(o.attempt, err))
	return err
}

// parked answers a message whose event is parked.
func (in *Inbox) parked(i Info) error {
	in.obs.Parked(i)
	in.cfg.Logger.Error("inbox: event is parked", logged(i)...)
	if in.cfg.Park == ParkAndAck {
		return nil
	}
	return i.Err
}

func (in *Inbox) failed(i Info) {
	in.obs.Failed(i)
	in.cfg.Logger.Warn("inbox: event failed", logged(i)...)
}

func logged(i Info) []any {
	e := i.Event
	return []any{
		"consumer", e.Consumer, "handler", e.Handler, "tenant_id", e.Tenant, "event_id", e.EventID, "event_type", e.Type,
		"topic", e.Topic, "attempt", i.Attempt, "error", i.Err,
	}
}

func (in *Inbox) cached(ctx context.Context, d delivery) bool {
	if in.cfg.Cache == nil {
		return false
	}
	hit, err := in.cfg.Cache.Seen(ctx, cacheKey(d.info.Event.InboxKey))
	hit = hit && err == nil
	in.obs.Cached(d.told(0, err), hit)
	return hit
}

// remember is called after a commit only.
func (in *Inbox) remember(ctx context.Context, d delivery) {
	if in.cfg.Cache != nil {
		_ = in.cfg.Cache.Remember(ctx, cacheKey(d.info.Event.InboxKey)) // the table knows
	}
}

func cacheKey(k Key) string {
	return once.Key{Scope: once.Scope("inbox", k.Consumer, k.Handler), Tenant: k.Tenant, ID: k.EventID}.String()
}

func (in *Inbox) delivery(e Event, msg *message.Message) delivery {
	return delivery{info: Info{Event: e, OccurredAt: occurredAt(msg.Metadata)}, came: time.Now()}
}
