package oteloutbox

import (
	"context"

	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/ormoutbox/ormoutbox/core/inbox"
)

// Acknowledge begins the span of an acknowledgement, ack, or of a rejection, nack. It is of kind
// CLIENT, a child of the span of ctx, and linked to the spans that created the messages. Call it
// with the action of the Result before the client sends the answer to the broker, give the client
// the context that it returns, and call end once with the error of the client:
//
//	ctx, end := traces.Acknowledge(ctx, res.Action, msg)
//	end(client.Ack(ctx))
//
// inbox.Retry is a nack. inbox.Dead is an ack, because the message has been put elsewhere then.
// Several messages of one topic may share a span, as Kafka commits offsets. An instrumented client
// has this span already, so nothing in this project calls Acknowledge. Without messages there is no
// span.
func (t *Traces) Acknowledge(ctx context.Context, action inbox.Action, msgs ...inbox.Message) (
	ackCtx context.Context, end func(err error),
) {
	if len(msgs) == 0 {
		return ctx, func(error) {}
	}
	word := "ack"
	if action == inbox.Retry {
		word = "nack"
	}
	name, attrs := t.operation(word, semconv.MessagingOperationTypeSettle, msgs[0].Topic)
	if len(msgs) == 1 {
		attrs = append(attrs, t.place(msgs[0])...)
	} else {
		attrs = append(attrs, semconv.MessagingBatchMessageCount(len(msgs)))
	}
	ctx, span := t.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(attrs...), trace.WithLinks(t.links(ctx, msgs)...))
	return ctx, func(err error) {
		failed(span, err)
		span.End()
	}
}
