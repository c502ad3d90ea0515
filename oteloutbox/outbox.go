package oteloutbox

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/ormoutbox/ormoutbox/core"
)

// Outbox returns the tracer of core.Config, and of Config.Tracer of each adapter.
//
// Publish makes a span of kind PRODUCER for each row, a child of the span of its context: one event
// for two topics has two. The headers of the row carry it. If the headers of the event carry a
// trace already, they stay as they are, and there is no span. The span ends with Publish, and not
// with the transaction: an event whose transaction rolls back has a span too.
//
// The relay makes a span of kind CLIENT for each call of the publisher. A publisher that makes
// spans itself makes them below it. An event without a trace, from a process without a Tracer, gets
// a span of kind PRODUCER, whose context the broker gets.
func (t *Traces) Outbox() *core.Tracer { return &core.Tracer{Create: t.create, Send: t.send} }

func (t *Traces) create(ctx context.Context, e core.Event) (map[string]string, func(error)) {
	if _, created := t.creation(ctx, e.Headers); created.IsValid() {
		return nil, nil
	}
	if t.cfg.WithoutCreateSpan {
		return t.injected(ctx), nil
	}
	name, attrs := t.operation("create", semconv.MessagingOperationTypeCreate, e.Topic)
	attrs = append(attrs, semconv.MessagingMessageID(e.ID), eventTypeKey.String(e.Type))
	ctx, span := t.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(attrs...))
	return t.injected(ctx), func(err error) {
		failed(span, err)
		span.End()
	}
}

func (t *Traces) send(ctx context.Context, d core.Delivery, path core.Path) (
	context.Context, map[string]string, func(string, error),
) {
	ctx, created := t.creation(ctx, d.Headers)
	name, attrs := t.operation("send", semconv.MessagingOperationTypeSend, d.Topic)
	attrs = append(attrs, semconv.MessagingMessageID(d.ID), eventTypeKey.String(d.Type), attemptKey.Int(d.Attempt),
		pathKey.String(string(path)))
	if d.Key != "" && t.kafka(d.Topic) {
		attrs = append(attrs, semconv.MessagingKafkaMessageKey(d.Key))
	}
	if !d.ReplayOf.IsZero() {
		attrs = append(attrs, replayOfKey.String(d.ReplayOf.String()))
	}
	opts := []trace.SpanStartOption{trace.WithAttributes(attrs...)}
	kind := trace.SpanKindClient
	switch {
	case !created.IsValid():
		kind = trace.SpanKindProducer
		opts = append(opts, trace.WithNewRoot())
	case t.cfg.CreationContextAsParent && d.Attempt <= 1 && d.ReplayOf.IsZero():
		ctx = trace.ContextWithRemoteSpanContext(ctx, created)
	default:
		opts = append(opts, trace.WithNewRoot(), trace.WithLinks(link(created, d.ID)))
	}
	ctx, span := t.tracer.Start(ctx, name, append(opts, trace.WithSpanKind(kind))...)
	var headers map[string]string
	if kind == trace.SpanKindProducer {
		headers = t.injected(ctx)
	}
	return ctx, headers, func(receipt string, err error) {
		if receipt != "" {
			span.SetAttributes(receiptKey.String(receipt))
		}
		failed(span, err)
		span.End()
	}
}

func (t *Traces) kafka(topic string) bool {
	if system, ok := t.cfg.Systems[topic]; ok {
		return system == "kafka"
	}
	return t.cfg.System == "kafka"
}

// link leads to the span that created a message.
func link(created trace.SpanContext, id string) trace.Link {
	l := trace.Link{SpanContext: created}
	if id != "" {
		l.Attributes = []attribute.KeyValue{semconv.MessagingMessageID(id)}
	}
	return l
}

// failed notes an error on a span, with the text that the table and the log get.
func failed(span trace.Span, err error) {
	if err == nil || !span.IsRecording() {
		return
	}
	text, typ := core.ErrorText(err), errorType(err)
	span.SetStatus(codes.Error, text)
	span.SetAttributes(typ)
	span.AddEvent("exception", trace.WithAttributes(semconv.ExceptionType(typ.Value.AsString()),
		semconv.ExceptionMessage(text)))
}

// errorType is the class that err is marked with, a word for the end of a context, or the Go type.
func errorType(err error) attribute.KeyValue {
	if class, marked := core.ClassOf(err); marked {
		return semconv.ErrorTypeKey.String(class.String())
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return semconv.ErrorTypeKey.String("timeout")
	case errors.Is(err, context.Canceled):
		return semconv.ErrorTypeKey.String("canceled")
	}
	return semconv.ErrorType(err)
}
