package oteloutbox_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/oteloutbox"
)

// A consumer that acknowledges messages itself. A service has an exporter to its collector in place
// of the one in memory.
func ExampleTraces_Acknowledge() {
	spans := tracetest.NewInMemoryExporter()
	traces := oteloutbox.NewTraces(oteloutbox.TracesConfig{
		TracerProvider: sdk.NewTracerProvider(sdk.WithSyncer(spans)), System: "rabbitmq",
	})
	tellBroker := func(context.Context) error { return nil } // what the client of the broker does

	res := inbox.Result{Action: inbox.Ack} // of Process
	ctx, end := traces.Acknowledge(context.Background(), res.Action, inbox.Message{Topic: "orders"})
	end(tellBroker(ctx))

	for _, span := range spans.GetSpans() {
		fmt.Println(span.SpanKind, span.Name)
	}
	// Output: client ack orders
}

func TestAcknowledgementsAreTraced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, oteloutbox.TracesConfig{})
		traces := oteloutbox.NewTraces(oteloutbox.TracesConfig{TracerProvider: s.provider, System: "kafka"})
		for range 2 {
			if err := s.request(t.Context(), core.Event{Type: "order.placed", Topic: "orders"}); err != nil {
				t.Fatal(err)
			}
		}
		s.relay(10 * time.Second)
		msgs := s.messages()
		msgs[0].Partition, msgs[0].Offset, msgs[0].Located = 3, 1042, true
		s.exporter.Reset()

		// The inbox alone makes no such span.
		res := s.inbox.Process(t.Context(), msgs[0], s.followUp)
		s.wantNames("create invoices", "process orders")
		s.exporter.Reset()

		poll, ambient := s.provider.Tracer("broker").Start(t.Context(), "poll")
		tell := func(err error, action inbox.Action, msgs ...inbox.Message) {
			t.Helper()
			ctx, end := traces.Acknowledge(poll, action, msgs...)
			if got := trace.SpanFromContext(ctx) == trace.SpanFromContext(poll); got != (len(msgs) == 0) {
				t.Errorf("the client gets the span of the poll: %t, with %d messages", got, len(msgs))
			}
			end(err)
		}
		tell(nil, res.Action, msgs[0])
		s.has("ack orders", map[string]string{
			"messaging.system": "kafka", "messaging.operation.name": "ack", "messaging.operation.type": "settle",
			"messaging.destination.name": "orders", "messaging.message.id": msgs[0].Headers[core.HeaderEventID],
			"messaging.destination.partition.id": "3", "messaging.kafka.offset": "1042",
		})
		ack := s.span("ack orders")
		if ack.SpanKind != trace.SpanKindClient || ack.Parent.SpanID() != ambient.SpanContext().SpanID() {
			t.Errorf("the ack is a %s, child of %s", ack.SpanKind, ack.Parent.SpanID())
		}
		if len(ack.Links) != 1 || !contains(msgs[0].Headers["traceparent"], ack.Links[0]) {
			t.Errorf("the ack has the links %v", ack.Links)
		}

		tell(core.Unavailable(errors.New("gone")), inbox.Retry, msgs[1])
		s.has("nack orders", map[string]string{
			"messaging.system": "kafka", "messaging.operation.name": "nack", "messaging.operation.type": "settle",
			"messaging.destination.name": "orders", "messaging.message.id": msgs[1].Headers[core.HeaderEventID],
			"error.type": "unavailable",
		})

		tell(nil, inbox.Dead, msgs...)
		s.has("ack orders", map[string]string{
			"messaging.system": "kafka", "messaging.operation.name": "ack", "messaging.operation.type": "settle",
			"messaging.destination.name": "orders", "messaging.batch.message_count": "2",
		})
		if links := s.span("ack orders").Links; len(links) != 2 || !contains(msgs[1].Headers["traceparent"], links[1]) {
			t.Errorf("the ack of two messages has the links %v", links)
		}

		tell(nil, inbox.Ack)
		s.wantNames("ack orders", "nack orders", "ack orders")
	})
}

// contains reports whether a traceparent is that of the span to which the link leads.
func contains(traceparent string, l sdk.Link) bool {
	return traceparent == fmt.Sprintf("00-%s-%s-01", l.SpanContext.TraceID(), l.SpanContext.SpanID())
}

// wantNames compares the names of the spans, in the order in which they ended.
func (s *service) wantNames(names ...string) {
	s.t.Helper()
	var got []string
	for _, span := range s.exporter.GetSpans() {
		got = append(got, span.Name)
	}
	if fmt.Sprint(got) != fmt.Sprint(names) {
		s.t.Errorf("the spans are %q, want %q", got, names)
	}
}
