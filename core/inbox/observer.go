package inbox

import (
	"context"
	"errors"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/callback"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlerr"
)

// Observer has the callbacks of an Inbox for metrics and traces. Fields may be nil. Many goroutines
// call them. A callback must be fast, must not block and must not panic. New fields may be added.
type Observer struct {
	// Processed: the handler ran, and its effects are committed.
	Processed func(Info)
	// Duplicate: the event had been processed before, or a person has discarded it; the handler was
	// not run.
	Duplicate func(Info)
	// Stale: a newer event of the same key had been processed before. The handler was not run for
	// this event, and never will be.
	Stale func(Info)
	// InProgress: another process works on the event.
	InProgress func(Info)
	// Failed: the message was not processed, and is not acknowledged. [Info.Err] is the reason.
	Failed func(Info)
	// Dead: the event was given up now, or was delivered while it was dead. [Info.Err] wraps
	// ErrInvalidMessage when the message has no usable id. Such a message is in no table.
	Dead func(Info)
	// Produced: the handler produced this many messages, which were written to the outbox in a
	// transaction that is not committed yet: see [Produced]. Module inbox, whose handlers return
	// messages, reports them itself.
	Produced func(info Info, messages int)
	// Cached: the cache was asked.
	Cached func(info Info, hit bool)
	// Cleaned: Cleanup deleted this many events and keys, and failed with err unless it is nil.
	Cleaned func(deleted int, err error)
}

// Info describes one delivery of an event.
type Info struct {
	Event Event
	// Attempt is the number of the attempt, failed ones included. 0: the number is not known, or
	// the delivery was no attempt, because the consumer stops.
	Attempt    int
	Duration   time.Duration // since the message came
	OccurredAt time.Time     // the time of the event; zero if its headers have none
	Err        error         // set for Failed and Dead
}

type producedKey struct{}

// Produced calls [Observer.Produced] for the message of a handler. ctx is the handler's.
func Produced(ctx context.Context, messages int) {
	if tell, ok := ctx.Value(producedKey{}).(func(int)); ok {
		tell(messages)
	}
}

// withProduced returns the context of the handler of a delivery.
func (in *Inbox) withProduced(ctx context.Context, d delivery) context.Context {
	if o := in.cfg.Observer; o == nil || o.Produced == nil {
		return ctx
	}
	return context.WithValue(ctx, producedKey{}, func(n int) { in.obs.Produced(d.infoAfter(0, nil), n) })
}

// withDefaults returns a copy in which a nil field does nothing.
func (o *Observer) withDefaults() Observer {
	all := callback.Present(o)
	return Observer{
		Processed:  callback.Each1(all, func(o *Observer) func(Info) { return o.Processed }),
		Duplicate:  callback.Each1(all, func(o *Observer) func(Info) { return o.Duplicate }),
		Stale:      callback.Each1(all, func(o *Observer) func(Info) { return o.Stale }),
		InProgress: callback.Each1(all, func(o *Observer) func(Info) { return o.InProgress }),
		Failed:     callback.Each1(all, func(o *Observer) func(Info) { return o.Failed }),
		Dead:       callback.Each1(all, func(o *Observer) func(Info) { return o.Dead }),
		Produced:   callback.Each2(all, func(o *Observer) func(Info, int) { return o.Produced }),
		Cached:     callback.Each2(all, func(o *Observer) func(Info, bool) { return o.Cached }),
		Cleaned:    callback.Each2(all, func(o *Observer) func(int, error) { return o.Cleaned }),
	}
}

// coder is an error that names itself: see [Failure.Code].
type coder interface {
	error
	InboxCode() string
}

// code is a short name of the kind of error that err is, for the table.
func code(err error, class core.Class) string {
	if errors.Is(err, ErrAcknowledged) {
		return "acknowledged"
	}
	if p, ok := errors.AsType[*core.PanicError](err); ok {
		if p.Value == nil {
			return "goexit"
		}
		return "panic"
	}
	if c, ok := errors.AsType[coder](err); ok {
		return c.InboxCode()
	}
	switch {
	case errors.Is(err, core.ErrCommitUnknown):
		return "commit_unknown"
	case sqlerr.Retryable(err):
		return "retryable"
	case class != core.ClassTransient:
		return class.String()
	}
	if class, marked := core.ClassOf(err); marked {
		return class.String()
	}
	return "handler_error"
}

// Tracer has the callbacks of an Inbox for traces; module oteloutbox makes one for OpenTelemetry.
// Fields may be nil. Many goroutines call them. They must be fast, must not block and must not
// panic. Without a Tracer, tracing costs nothing. New fields may be added.
type Tracer struct {
	// Process is called before a message is processed, or the messages of one batch. ctx is the
	// context of the call. The handler, and the transaction around it, get the context that Process
	// returns, which must be ctx or a child of it. consumer is Config.Consumer. end is called once,
	// with a result for each message, also if the handler panics. It must not keep the slices.
	Process func(ctx context.Context, consumer string, msgs []Message) (
		processCtx context.Context, end func(results []Result))
}

// errUnwound is the error of a message whose handler did not return, for its trace.
var errUnwound = errors.New("inbox: the handler panicked or called runtime.Goexit")

// traced calls process between [Tracer.Process] and its end.
func (t *Tracer) traced(ctx context.Context, consumer string, msgs []Message,
	process func(context.Context) []Result,
) (results []Result) {
	ctx, end := t.Process(ctx, consumer, msgs)
	if end == nil {
		return process(ctx)
	}
	returned := false
	defer func() {
		if !returned {
			results = make([]Result, len(msgs))
			for n := range results {
				results[n] = Result{Action: Retry, Outcome: failed, Err: errUnwound}
			}
		}
		end(results)
	}()
	results = process(ctx)
	returned = true
	return results
}

// on reports whether there is something to call.
func (t *Tracer) on() bool { return t != nil && t.Process != nil }

// one is traced for a single message.
func (t *Tracer) one(ctx context.Context, consumer string, msg Message,
	process func(context.Context) Result,
) Result {
	return t.traced(ctx, consumer, []Message{msg}, func(ctx context.Context) []Result {
		return []Result{process(ctx)}
	})[0]
}
