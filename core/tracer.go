package core

import (
	"context"
)

// Tracer has the callbacks for traces; module oteloutbox makes one for OpenTelemetry. Fields may be
// nil. Many goroutines call them, on the path of a publish or a commit. They must be fast, must not
// block and must not panic. Without a Tracer, tracing costs nothing. New fields may be added.
type Tracer struct {
	// Create is called by Outbox.Publish for each row, before the row is inserted. ctx is the
	// context of the call, or of Event.WithContext. e is complete, its Topic included. It must be
	// neither changed nor kept. headers are added to the event's headers and replace equal names.
	// If they do not fit into the limits of headers or of the publisher (SizeChecker), the event
	// goes without them, because a trace must not stop an event. end, if it is not nil, is called
	// once, when Publish returns, with the error of Publish. The transaction has not ended then.
	Create func(ctx context.Context, e Event) (headers map[string]string, end func(error))
	// Send is called before each call of the publisher. The publisher gets the context that Send
	// returns, which must be ctx or a child of it. headers are added to d's headers, for this call
	// only. If one of them is not a valid header, or makes the event too large for the publisher
	// (SizeChecker), d goes without them. end, if it is not nil, is called once, when the publisher
	// has returned, with its receipt and its error.
	Send func(ctx context.Context, d Delivery, path Path) (
		sendCtx context.Context, headers map[string]string, end func(receipt string, err error))
}
