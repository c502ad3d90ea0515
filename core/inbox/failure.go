package inbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

// recordTimeout bounds the transaction that records a failure. When the message's context has
// ended, the caller is answered late already.
const (
	recordTimeout     = 5 * time.Second
	lateRecordTimeout = time.Second
)

// recording returns a context in which a failure can be written although that of the message has
// ended.
func recording(ctx context.Context) (context.Context, context.CancelFunc) {
	limit := recordTimeout
	if deadline, ok := ctx.Deadline(); ok {
		limit = min(limit, max(time.Until(deadline), lateRecordTimeout))
	}
	return context.WithTimeout(context.WithoutCancel(ctx), limit)
}

// judge says what kind of failure err is: what it says about itself, else what the classifier says.
// A failure that only other transactions caused, and one of the database or the network, is
// ClassUnavailable: it says nothing about the event.
func (in *Inbox) judge(err error) core.Class {
	class, ok := core.ClassOf(err)
	switch {
	case ok && class != core.ClassKeyUnavailable && class != core.ClassUnroutable:
		return class
	case ok, becauseOfOthers(err):
		return core.ClassUnavailable
	}
	return in.cfg.Classifier(err)
}

// becauseOfOthers is core.Retryable without a transaction that is merely known to have been
// aborted: a handler that hides errors of its own statements does that each time, and must not go
// on for ever.
func becauseOfOthers(err error) bool {
	if !errors.Is(err, core.ErrTxAborted) {
		return core.Retryable(err)
	}
	switch u := err.(type) { //nolint:errorlint // this is the walk through what is wrapped
	case interface{ Unwrap() error }:
		return becauseOfOthers(u.Unwrap())
	case interface{ Unwrap() []error }:
		return slices.ContainsFunc(u.Unwrap(), becauseOfOthers)
	}
	return false
}

// classify is the default of Config.Classifier. The end of an input that core.DefaultClassifier
// takes for a lost connection is, in a handler, as likely that of a message which was cut off: it
// spends attempts, unless it came from a request.
func classify(err error) core.Class {
	if _, request := errors.AsType[*url.Error](err); !request &&
		(errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)) {
		return core.ClassTransient
	}
	return core.DefaultClassifier(err)
}

// fail records that the handler failed, and returns what the message is answered with, and how long
// to wait before.
func (in *Inbox) fail(ctx context.Context, d delivery, o outcome, err error) (wait time.Duration, _ error) {
	// it may be processed; it was cut short
	if errors.Is(err, core.ErrCommitUnknown) || errors.Is(ctx.Err(), context.Canceled) {
		return in.pauses.outage(ctx), in.failed(ctx, d.told(o.attempt, err))
	}
	class := in.judge(err)
	f := Failure{
		Event: d.info.Event, Code: code(err, class), Text: err.Error(),
		Free: class == core.ClassUnavailable, Dead: class == core.ClassPermanent,
		MaxAttempts: max(in.cfg.MaxAttempts, 0), MinAge: max(in.cfg.MinAge, 0),
	}
	recordCtx, cancel := recording(ctx)
	defer cancel()
	state, attempts, recordErr := in.cfg.Store.Fail(recordCtx, f)
	switch {
	case recordErr != nil:
		err = errors.Join(err, fmt.Errorf("inbox: record the failure: %w", recordErr))
	case state == StateProcessed && o.maybeKept():
		return in.ended(ctx, d, o, err)
	case state == StateProcessed: // by another copy, meanwhile
		in.remember(ctx, d)
		in.obs.Duplicate(d.told(attempts, nil))
		return 0, nil
	case state == StateDead:
		return 0, in.dead(d.told(attempts, fmt.Errorf("%w (attempts: %d): %w", ErrDead, attempts, err)))
	default:
		o.attempt = attempts
	}
	err = in.failed(ctx, d.told(o.attempt, err))
	if f.Free || recordErr != nil {
		return in.pauses.outage(ctx), err
	}
	return in.pauses.after(attempts), err
}

// dead answers a message whose event is dead.
func (in *Inbox) dead(i Info) error {
	in.obs.Dead(i)
	in.cfg.Logger.Error("inbox: event is dead", logged(i)...)
	return i.Err
}
