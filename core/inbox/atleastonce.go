package inbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/cause"
	"github.com/ormoutbox/ormoutbox/core/internal/errtext"
	"github.com/ormoutbox/ormoutbox/core/internal/program"
	"github.com/ormoutbox/ormoutbox/core/once"
)

// AtLeastOnce deduplicates messages without a transaction, by a lease of package once: in Redis
// (module inbox/redisonce), or in a database other than the effects'. Copies are not processed at
// the same time, nor after the first was marked as done. But the effects of a handler and its mark
// are not written together. The handler runs again after a crash between the two, after a lost
// lease, and when the store has lost the mark. Use an Inbox where the effects are in its database.
//
// Make one with [NewAtLeastOnce]; it is safe for use by several goroutines.
type AtLeastOnce struct {
	in     *Inbox // for the identity of messages and the observer
	runner *once.Runner
	names  program.Names
}

// AtLeastOnceConfig configures an AtLeastOnce. Consumer and Runner are required. A field that
// Config has too means the same here.
type AtLeastOnceConfig struct {
	Consumer string
	// Runner holds the lease. Its Config.TTL must be longer than the time for which the broker can
	// deliver a message.
	Runner  *once.Runner
	Handler string
	EventID func(msg Message) (string, error)
	Tenant  func(msg Message) string

	Observer *Observer
	Tracer   *Tracer
	Logger   *slog.Logger

	// MaxAttempts and MinAge limit the attempts, as in Config: a message is given up when its
	// handler has run MaxAttempts times, and the first run was MinAge ago. Then the Result is Dead,
	// and the store forgets the attempts: a message that is delivered again has fresh ones. A run
	// that ended with the process counts. A delivery that only waited for another copy does not.
	// Negative: without limit, at any age.
	MaxAttempts int
	MinAge      time.Duration
	// Classifier, RetryPause and MaxRetryPause are as in Config. A message whose event another copy
	// holds waits for the lease of that copy, at most MaxRetryPause, before it is rejected.
	Classifier    func(error) core.Class
	RetryPause    time.Duration
	MaxRetryPause time.Duration
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
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	c := Config{
		Consumer: cfg.Consumer, Handler: cfg.Handler, EventID: cfg.EventID, Tenant: cfg.Tenant,
		Observer: cfg.Observer, Tracer: cfg.Tracer, Logger: cfg.Logger,
		MaxAttempts: cfg.MaxAttempts, MinAge: cfg.MinAge, Classifier: cfg.Classifier, RetryPause: cfg.RetryPause,
		MaxRetryPause: cfg.MaxRetryPause,
	}
	if err := c.checkPauses("AtLeastOnceConfig"); err != nil {
		return nil, err
	}
	c = c.withDefaults()
	return &AtLeastOnce{in: newInbox(c), runner: cfg.Runner}, nil
}

// Consumer returns the name of the consumer.
func (a *AtLeastOnce) Consumer() string { return a.in.cfg.Consumer }

// Event returns the event of a message, see Inbox.Event.
func (a *AtLeastOnce) Event(msg Message) (Event, error) { return a.in.Event(msg) }

// Process runs h unless the event of msg is done. The Result is the answer to the message. The
// context of h ends when the lease is lost, with the cause once.ErrLeaseLost. h should stop then.
//
// [Result.Err] wraps one of:
//
//   - the error of h;
//   - ErrDead when h has failed too often, or with core.Permanent. If the lease was lost meanwhile,
//     the error wraps once.ErrLeaseLost instead: another copy may be at work, and decides;
//   - ErrInvalidMessage;
//   - ErrInProgress and once.ErrInProgress while another copy is being processed;
//   - once.ErrStore when the store did not answer, and h was not run.
func (a *AtLeastOnce) Process(ctx context.Context, msg Message,
	h func(ctx context.Context, msg Message) error,
) Result {
	if t := a.in.cfg.Tracer; t.on() {
		return t.one(ctx, a.in.cfg.Consumer, msg, func(ctx context.Context) Result { return a.process(ctx, msg, h) })
	}
	return a.process(ctx, msg, h)
}

func (a *AtLeastOnce) process(ctx context.Context, msg Message,
	h func(ctx context.Context, msg Message) error,
) Result {
	msg.Headers = core.UnpackFields(msg.Headers)
	e, err := a.in.Event(msg)
	if err != nil {
		return a.in.invalid(newDelivery(e, msg).infoAfter(0, err))
	}
	d := newDelivery(e, msg)
	ctx = a.in.withProduced(cause.With(ctx, causeOf(msg, e)), d)
	return a.run(ctx, d, func(ctx context.Context) error { return h(ctx, msg) })
}

func (a *AtLeastOnce) run(ctx context.Context, d delivery,
	fn func(context.Context) error,
) Result {
	e := d.info.Event
	key := once.Key{Scope: once.Scope("inbox", e.Consumer, e.Handler), Tenant: e.Tenant, ID: e.EventID}
	if err := key.Validate(); err != nil {
		return a.in.invalid(d.infoAfter(0, errtext.Errorf("%w: %w", ErrInvalidMessage, err)))
	}
	var r leased
	returned := false
	defer func() {
		if returned {
			return
		}
		v := recover() // v is nil after runtime.Goexit, which goes on too
		err := panicked(v)
		if early := d.refused(); early != nil {
			a.in.dead(0, d.infoAfter(r.attempt, errtext.Errorf("%w: %w: %w", ErrDead, early, err)))
		} else {
			_ = a.in.failed(ctx, d.infoAfter(r.attempt, err))
		}
		sleep(ctx, a.in.pauses.after(r.attempt))
		if v != nil {
			panic(v) //nolint:forbidigo // the panic of the caller's function goes on
		}
	}()
	if d.refused() != nil { // which has ended ctx, perhaps; a copy that is done is done
		ctx = context.WithoutCancel(ctx)
	}
	a.register(ctx, e)
	outer := ctx
	_, replayed, err := a.runner.Do(ctx, key, once.Fingerprint{}, func(ctx context.Context) (once.Result, error) {
		this := once.AttemptOf(ctx)
		r = leased{attempt: this.Number, ran: true}
		// Each of the earlier attempts panicked, or its process died.
		if limit := a.in.cfg.MaxAttempts; limit > 0 && this.Number > limit && a.oldEnough(this) {
			this.Reset()
			r.dead = ErrDead
			return once.Result{}, fmt.Errorf("the handler began %d times and never ended", this.Number-1)
		}
		panicking := true
		defer func() {
			if panicking && errors.Is(outer.Err(), context.Canceled) && d.refused() == nil {
				this.Refund() // the consumer stops, perhaps under the hands of the handler
			}
		}()
		err := d.refused()
		if err == nil {
			failed := fn(ctx)
			err = errors.Join(d.refused(), failed)
		}
		panicking = false
		if err != nil {
			r.dead = a.failedAttempt(ctx, this, err)
			err = &handlerError{err}
		}
		return once.Result{}, err
	})
	returned = true
	r.replayed = replayed
	return a.conclude(ctx, d, r, err)
}

// leased is how a message fared under its lease.
type leased struct {
	attempt  int
	ran      bool
	replayed bool
	dead     error // wraps ErrDead if it is given up, provided that the lease was held to the end
}

func (a *AtLeastOnce) oldEnough(t *once.Attempt) bool { return t.Age >= max(a.in.cfg.MinAge, 0) }

// failedAttempt decides by the class of a handler's error whether the attempt counts. It returns an
// error wrapping [ErrDead] if the message is given up. A handler that was cut short gives nothing
// up.
func (a *AtLeastOnce) failedAttempt(ctx context.Context, t *once.Attempt, err error) (dead error) {
	limit := a.in.cfg.MaxAttempts
	canceled := errors.Is(ctx.Err(), context.Canceled)
	switch class := a.in.judge(err); {
	case class == core.ClassPermanent && (!canceled || errors.Is(err, ErrAcknowledged)),
		class != core.ClassUnavailable && ctx.Err() == nil && limit > 0 && t.Number >= limit && a.oldEnough(t):
		t.Reset()
		return fmt.Errorf("%w (attempts: %d)", ErrDead, t.Number)
	case class == core.ClassUnavailable, canceled:
		// The handler was cut short, or the failure is not the event's fault.
		t.Refund()
	}
	return nil
}

// handlerError marks the handler's error, to tell it from errors of the lease.
type handlerError struct{ error }

// Unwrap returns the error of the handler.
func (e *handlerError) Unwrap() error { return e.error }

// ofLease reports whether the lease of the message itself ended with target. A handler may return
// the same error from another Runner, which does not concern this message.
func ofLease(err, target error) bool {
	if err == target { //nolint:errorlint // this is the walk through what is wrapped
		return true
	}
	switch e := err.(type) { //nolint:errorlint // so is this
	case *handlerError:
		return false
	case interface{ Unwrap() error }:
		return ofLease(e.Unwrap(), target)
	case interface{ Unwrap() []error }:
		return slices.ContainsFunc(e.Unwrap(), func(err error) bool { return ofLease(err, target) })
	}
	return false
}

func (a *AtLeastOnce) conclude(ctx context.Context, d delivery, r leased, err error) Result {
	pauses := &a.in.pauses
	switch {
	case err == nil && r.replayed, r.ran && ofLease(err, once.ErrAlreadyDone):
		// Another copy did it, perhaps when this one had lost its lease.
		pauses.reset()
		a.in.obs.Duplicate(d.infoAfter(0, nil))
		return ack(duplicate)
	case err == nil:
		pauses.reset()
		a.in.obs.Processed(d.infoAfter(r.attempt, nil))
		return ack(processed)
	case r.dead != nil && !ofLease(err, once.ErrLeaseLost): // else another copy may be at work
		return a.in.dead(0, d.infoAfter(r.attempt, errtext.Errorf("%w: %w", r.dead, err)))
	case !r.ran && errors.Is(err, once.ErrInProgress):
		after := once.RetryAfter(err)
		err = errtext.Errorf("%w (try again in %s): %w", ErrInProgress, after.Round(time.Millisecond), err)
		a.in.obs.InProgress(d.infoAfter(0, err))
		return inProgress(min(after, pauses.longest()), err)
	}
	err = a.in.failed(ctx, d.infoAfter(r.attempt, err))
	if !r.ran || errors.Is(err, once.ErrStore) || a.in.judge(err) == core.ClassUnavailable {
		return retry(pauses.outage(ctx), err)
	}
	return retry(pauses.after(r.attempt), err)
}
