package inbox

import (
	"context"
	"errors"
	"io"
	"net/url"
	"slices"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/errtext"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlerr"
)

// recordTimeout bounds the transaction that records a failure. lateRecordTimeout bounds it when the
// message's context has ended, because the caller then gets its answer late already.
const (
	recordTimeout     = 5 * time.Second
	lateRecordTimeout = time.Second
)

// recording returns a context in which a failure can be recorded even if the context of the message
// has ended.
func recording(ctx context.Context) (context.Context, context.CancelFunc) {
	limit := recordTimeout
	if deadline, ok := ctx.Deadline(); ok {
		limit = min(limit, max(time.Until(deadline), lateRecordTimeout))
	}
	return context.WithTimeout(context.WithoutCancel(ctx), limit)
}

// judge returns the class of a failure: the class that err itself names, otherwise the class that
// the classifier returns. A failure that only other transactions caused is ClassUnavailable, and so
// is a failure of the database or the network: the event has no part in either.
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

// becauseOfOthers is sqltx.Retryable, but false for a bare core.ErrTxAborted. A handler that hides
// errors of its own statements causes that error each time, and must not be retried forever.
func becauseOfOthers(err error) bool {
	if !errors.Is(err, core.ErrTxAborted) {
		return sqlerr.Retryable(err)
	}
	switch u := err.(type) { //nolint:errorlint // this code itself unwraps
	case interface{ Unwrap() error }:
		return becauseOfOthers(u.Unwrap())
	case interface{ Unwrap() []error }:
		return slices.ContainsFunc(u.Unwrap(), becauseOfOthers)
	}
	return false
}

// classify is the default of [Config.Classifier]: core.DefaultClassifier, and a database that cannot
// be used now. core.DefaultClassifier takes io.EOF for a lost
// connection. In a handler it may as well be the end of a message that was cut off. So it spends
// attempts, unless it came from an HTTP request.
func classify(err error) core.Class {
	if _, request := errors.AsType[*url.Error](err); !request &&
		(errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)) {
		return core.ClassTransient
	}
	if sqlerr.Unavailable(err) {
		return core.ClassUnavailable
	}
	return core.DefaultClassifier(err)
}

// fail records that the handler failed. The event is dead only if the table has recorded it:
// neither if the handler was cut short, nor if the failure could not be recorded.
func (in *Inbox) fail(ctx context.Context, d delivery, o outcome, err error) Result {
	early := d.refused()
	// The event may be processed, or the handler was cut short: neither counts as a failure. An
	// acknowledgement ends the context too.
	if errors.Is(err, core.ErrCommitUnknown) || early == nil && errors.Is(ctx.Err(), context.Canceled) {
		return retry(in.pauses.outage(ctx), in.failed(ctx, d.infoAfter(o.attempt, err)))
	}
	if early != nil && !errors.Is(err, early) {
		err = errtext.Errorf("%w: %w", early, err)
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
		err = errors.Join(err, errtext.Errorf("inbox: record the failure: %w", recordErr))
	case state == StateProcessed && o.maybeKept():
		return in.ended(ctx, d, o, err)
	case state == StateProcessed: // another copy processed it meanwhile
		in.remember(ctx, d)
		in.obs.Duplicate(d.infoAfter(attempts, nil))
		return ack(duplicate)
	case state == StateDead:
		return in.dead(0, d.infoAfter(attempts, errtext.Errorf("%w (attempts: %d): %w", ErrDead, attempts, err)))
	default:
		o.attempt = attempts
	}
	err = in.failed(ctx, d.infoAfter(o.attempt, err))
	if f.Free || recordErr != nil {
		return retry(in.pauses.outage(ctx), err)
	}
	return retry(in.pauses.after(attempts), err)
}

// dead reports a dead event to the observer and the log, and returns the answer to its message.
func (in *Inbox) dead(after time.Duration, i Info) Result {
	in.obs.Dead(i)
	in.cfg.Logger.Error("inbox: event is dead", logged(i)...)
	return dead(after, i.Err)
}

// invalid does the same for a message without a usable identity, which is in no table.
func (in *Inbox) invalid(i Info) Result {
	in.obs.Dead(i)
	in.cfg.Logger.Error("inbox: message is invalid, and in no table", logged(i)...)
	return dead(0, i.Err)
}
