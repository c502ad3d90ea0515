package oteloutbox

import (
	"cmp"
	"context"
	"strings"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// scopeName is the name of the instrumentation scope.
const scopeName = "github.com/ormoutbox/ormoutbox/oteloutbox"

// Attributes of this project, in addition to the conventions for messaging.
const (
	// attemptKey is on send spans: the number of refusals of the event so far, plus one.
	attemptKey = attribute.Key("outbox.attempt")
	// pathKey is on send spans: hot, straight from the commit, or cold, claimed from the table.
	pathKey = attribute.Key("outbox.path")
	// eventTypeKey is on create and send spans: the type of the event.
	eventTypeKey = attribute.Key("outbox.event.type")
	// replayOfKey is on send spans of replays: the row that is sent again.
	replayOfKey = attribute.Key("outbox.replay.of")
	// receiptKey is on send spans: where the destination put the event, if its publisher returns
	// it.
	receiptKey = attribute.Key("outbox.receipt")
	// consumerKey is on process spans: Config.Consumer of the inbox.
	consumerKey = attribute.Key("inbox.consumer")
	// outcomeKey is on process spans: processed, duplicate, stale, in_progress, failed or dead. The
	// span of a batch has it if it is the same for all messages.
	outcomeKey = attribute.Key("inbox.outcome")
)

// TracesConfig configures a Traces. Its zero value works.
type TracesConfig struct {
	// TracerProvider makes the spans. Default: otel.GetTracerProvider(), when NewTraces is called.
	TracerProvider trace.TracerProvider
	// Propagator writes the context of a creation into the headers of its event, and reads it
	// there. Default: propagation.TraceContext{}, the headers traceparent and tracestate. To carry
	// baggage too, to the broker and to every consumer:
	//
	//	propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})
	Propagator propagation.TextMapPropagator
	// System is the attribute messaging.system: kafka, rabbitmq, nats, redis. Systems sets it for
	// single topics, for a Router with several brokers. Default: "outbox".
	System  string
	Systems map[string]string
	// CreationContextAsParent makes the spans of send and process children of the span that created
	// the event, so that one trace leads from the request to the last consumer. Default: they are
	// linked to it, as the conventions advise: each attempt and each consumer has a trace of its
	// own. Batches are linked in any case. So are replays, and sends of an event that was refused
	// before, because they may come days later.
	CreationContextAsParent bool
	// WithoutCreateSpan makes no span in Publish: events carry the context of the caller's span.
	WithoutCreateSpan bool
}

// Traces makes the spans of outboxes and inboxes. Make it with NewTraces. It is safe for use by
// several goroutines.
type Traces struct {
	cfg    TracesConfig
	tracer trace.Tracer
}

// NewTraces returns a Traces.
func NewTraces(cfg TracesConfig) *Traces {
	if cfg.TracerProvider == nil {
		cfg.TracerProvider = otel.GetTracerProvider()
	}
	if cfg.Propagator == nil {
		cfg.Propagator = propagation.TraceContext{}
	}
	cfg.System = cmp.Or(cfg.System, "outbox")
	return &Traces{cfg: cfg, tracer: cfg.TracerProvider.Tracer(scopeName, trace.WithSchemaURL(semconv.SchemaURL))}
}

// creation reads the context in which an event was created from its headers. ctx keeps its own
// span, and gets the baggage of the event, if the propagator carries any.
func (t *Traces) creation(ctx context.Context, headers map[string]string) (context.Context, trace.SpanContext) {
	if len(headers) == 0 {
		return ctx, trace.SpanContext{}
	}
	own := trace.SpanFromContext(ctx)
	read := t.cfg.Propagator.Extract(trace.ContextWithSpanContext(ctx, trace.SpanContext{}), carrier(headers))
	return trace.ContextWithSpan(read, own), trace.SpanContextFromContext(read)
}

// injected returns the headers that carry the span of ctx.
func (t *Traces) injected(ctx context.Context) map[string]string {
	c := propagation.MapCarrier{}
	t.cfg.Propagator.Inject(ctx, c)
	return c
}

// operation returns the name of a span and the attributes that every span has.
func (t *Traces) operation(name string, typ attribute.KeyValue, topic string) (string, []attribute.KeyValue) {
	system, ok := t.cfg.Systems[topic]
	if !ok {
		system = t.cfg.System
	}
	attrs := make([]attribute.KeyValue, 0, 12)
	attrs = append(attrs, semconv.MessagingSystemKey.String(system), semconv.MessagingOperationName(name), typ)
	if topic == "" {
		return name, attrs
	}
	return name + " " + topic, append(attrs, semconv.MessagingDestinationName(topic))
}

// carrier reads headers whose names a transport may have spelled in other letters, as HTTP does.
type carrier map[string]string

// Get implements propagation.TextMapCarrier.
func (c carrier) Get(key string) string {
	if v, ok := c[key]; ok {
		return v
	}
	for k, v := range c {
		if strings.EqualFold(k, key) {
			return v
		}
	}
	return ""
}

// Set implements propagation.TextMapCarrier.
func (c carrier) Set(key, value string) { c[key] = value }

// Keys implements propagation.TextMapCarrier.
func (c carrier) Keys() []string {
	keys := make([]string, 0, len(c))
	for k := range c {
		keys = append(keys, k)
	}
	return keys
}
