package inbox

import (
	"context"
	"errors"
)

// Tracer has the callbacks of an Inbox for traces; module oteloutbox makes one for OpenTelemetry.
// Fields may be nil. Many goroutines call them. They must be fast, must not block and must not
// panic. Without a Tracer, tracing costs nothing. New fields may be added.
type Tracer struct {
	// Process is called before a message is processed, or the messages of one batch. ctx is that of
	// the call. The handler, and the transaction around it, get the context that Process returns,
	// which must be ctx or a child of it. consumer is that of the Inbox. end is called once, with a
	// result for each message, also if the handler panics. It must not keep the slices.
	Process func(ctx context.Context, consumer string, msgs []Message) (
		processCtx context.Context, end func(results []Result))
}

// errUnwound is the error of a message whose handler did not return, for its trace.
var errUnwound = errors.New("inbox: the handler panicked or called runtime.Goexit")

// traced calls process between Tracer.Process and its end.
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
				results[n] = Result{Action: Retry, Outcome: Failed, Err: errUnwound}
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
