package oteloutbox

import (
	"context"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox"
)

// Inbox returns the tracer of inbox.Config, of package core/inbox and of module inbox.
//
// Each message has a span of kind CONSUMER, from its arrival to the end of its transaction. It is a
// child of the span of the message's context, such as the broker client's, and linked to the span
// that created the event: see TracesConfig.CreationContextAsParent. The context of the handler
// carries it, so the statements and the events of the handler are below it. A duplicate has a span
// too, with its own value of attribute inbox.outcome. ProcessBatch has one span for the batch, with
// a link for each message.
func (t *Traces) Inbox() *inbox.Tracer { return &inbox.Tracer{Process: t.process} }

func (t *Traces) process(ctx context.Context, consumer string, msgs []inbox.Message) (
	context.Context, func([]inbox.Result),
) {
	first := msgs[0]
	name, attrs := t.operation("process", semconv.MessagingOperationTypeProcess, first.Topic)
	attrs = append(attrs, consumerKey.String(consumer))
	ambient := trace.SpanContextFromContext(ctx)
	var links []trace.Link
	if len(msgs) == 1 {
		attrs = append(attrs, t.place(first)...)
		var created trace.SpanContext
		ctx, created = t.creation(ctx, first.Headers) // with the baggage of the event
		switch {
		case !created.IsValid():
		case t.cfg.CreationContextAsParent && first.Headers[core.HeaderReplayOf] == "":
			ctx = trace.ContextWithRemoteSpanContext(ctx, created)
			if ambient.IsValid() {
				links = append(links, trace.Link{SpanContext: ambient})
			}
		default:
			links = append(links, link(created, idOf(first)))
		}
	} else {
		attrs = append(attrs, semconv.MessagingBatchMessageCount(len(msgs)))
		links = t.links(ctx, msgs)
	}
	ctx, span := t.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithAttributes(attrs...), trace.WithLinks(links...))
	return ctx, func(results []inbox.Result) {
		defer span.End()
		for n, r := range results {
			if r.Outcome != results[0].Outcome {
				break
			}
			if n == len(results)-1 {
				span.SetAttributes(outcomeKey.String(r.Outcome))
			}
		}
		for _, r := range results {
			if r.Err != nil {
				failed(span, r.Err)
				return
			}
		}
	}
}

// place returns the attributes of a single message: its id, and where the broker has it.
func (t *Traces) place(msg inbox.Message) (attrs []attribute.KeyValue) {
	if id := idOf(msg); id != "" {
		attrs = append(attrs, semconv.MessagingMessageID(id))
	}
	if msg.Located {
		attrs = append(attrs, semconv.MessagingDestinationPartitionID(strconv.Itoa(int(msg.Partition))))
		if t.kafka(msg.Topic) {
			attrs = append(attrs, semconv.MessagingKafkaOffset(int(msg.Offset)))
		}
	}
	return attrs
}

// links lead to the spans that created the messages.
func (t *Traces) links(ctx context.Context, msgs []inbox.Message) (links []trace.Link) {
	for _, msg := range msgs {
		if _, created := t.creation(ctx, msg.Headers); created.IsValid() {
			links = append(links, link(created, idOf(msg)))
		}
	}
	return links
}

// idOf returns the identity of a message, as far as the message has one.
func idOf(msg inbox.Message) string {
	if msg.ID != "" {
		return msg.ID
	}
	id, _ := inbox.EventID(msg.Headers)
	return id
}
