package oteloutbox_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/propagation"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/inbox/inboxtest"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/oteloutbox"
)

// service is an outbox and a consumer of its topics, on tables in memory.
type service struct {
	t        *testing.T
	exporter *tracetest.InMemoryExporter
	provider *sdk.TracerProvider
	table    *outboxtest.Repository
	outbox   *core.Outbox
	inbox    *inbox.Inbox
	log      *bytes.Buffer

	mu     sync.Mutex
	sent   []core.Delivery
	refuse func(core.Delivery) error
}

func newService(t *testing.T, cfg oteloutbox.TracesConfig) *service {
	t.Helper()
	s := &service{
		t: t, exporter: tracetest.NewInMemoryExporter(), table: outboxtest.NewRepository(), log: &bytes.Buffer{},
	}
	s.provider = sdk.NewTracerProvider(sdk.WithSyncer(s.exporter))
	cfg.TracerProvider = s.provider
	traces := oteloutbox.NewTraces(cfg)
	logger := slog.New(slog.NewTextHandler(s.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	var err error
	s.outbox, err = core.New(core.Config{
		Repository: s.table,
		Publisher:  core.PublisherFunc(s.publish),
		Relay:      relay.Config{},
		Tracer:     traces.Outbox(),
		Logger:     logger,
	})
	if err != nil {
		t.Fatal(err)
	}
	s.inbox, err = inbox.New(inbox.Config{
		Consumer: "billing", Handler: "invoice", Transactor: s.table.Transactor(), Store: inboxtest.NewStore(),
		Tracer: traces.Inbox(), Logger: slog.New(slog.DiscardHandler), MaxAttempts: 1, MinAge: -1, RetryPause: -1,
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *service) publish(ctx context.Context, d core.Delivery) error {
	_, span := s.provider.Tracer("broker").Start(ctx, "client")
	span.End()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = append(s.sent, d)
	if s.refuse != nil {
		return s.refuse(d)
	}
	return nil
}

// request is a request that publishes events.
func (s *service) request(ctx context.Context, events ...core.Event) error {
	ctx, span := s.provider.Tracer("http").Start(ctx, "POST /orders", trace.WithSpanKind(trace.SpanKindServer))
	defer span.End()
	return s.table.Transactor().RunInTx(ctx, func(ctx context.Context, tx core.Tx) error {
		_, err := s.outbox.Publish(ctx, tx, events...)
		return err
	})
}

// relay runs the relay for a while.
func (s *service) relay(d time.Duration) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.outbox.Run(ctx) }()
	time.Sleep(d)
	cancel()
	if err := <-done; err != nil {
		s.t.Fatal(err)
	}
}

// messages are what the broker has.
func (s *service) messages() (msgs []inbox.Message) {
	for _, d := range s.sent {
		headers := maps.Clone(d.Headers)
		if headers == nil {
			headers = map[string]string{}
		}
		headers[core.HeaderEventID] = d.ID
		msgs = append(msgs, inbox.Message{Topic: d.Topic, Headers: headers, Payload: d.Payload})
	}
	return msgs
}

// want compares the spans with lines like
//
//	send orders: client, child of create orders, linked to create orders, error x
//
// in the order in which the spans ended. A span without a parent begins a trace.
func (s *service) want(lines ...string) {
	s.t.Helper()
	spans := s.exporter.GetSpans()
	name := map[trace.SpanID]string{}
	for _, span := range spans {
		name[span.SpanContext.SpanID()] = span.Name
	}
	var got []string
	for _, span := range spans {
		line := fmt.Sprintf("%s: %s", span.Name, span.SpanKind)
		if span.Parent.IsValid() {
			line += ", child of " + name[span.Parent.SpanID()]
			if span.Parent.TraceID() != span.SpanContext.TraceID() {
				s.t.Errorf("%s is in another trace than its parent", span.Name)
			}
		}
		for _, link := range span.Links {
			line += ", linked to " + name[link.SpanContext.SpanID()]
		}
		if span.Status.Description != "" {
			line += ", error " + span.Status.Description
		}
		got = append(got, line)
	}
	if !slices.Equal(got, lines) {
		s.t.Errorf("the spans are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(lines, "\n"))
	}
}

// span returns the last span of a name.
func (s *service) span(name string) tracetest.SpanStub {
	s.t.Helper()
	spans := s.exporter.GetSpans()
	for _, span := range slices.Backward(spans) {
		if span.Name == name {
			return span
		}
	}
	s.t.Fatalf("no span %q", name)
	return tracetest.SpanStub{}
}

// has compares all attributes of a span.
func (s *service) has(name string, want map[string]string) {
	s.t.Helper()
	got := map[string]string{}
	for _, a := range s.span(name).Attributes {
		got[string(a.Key)] = a.Value.String()
	}
	if !maps.Equal(got, want) {
		s.t.Errorf("%s has the attributes\n%v\nwant\n%v", name, got, want)
	}
}

func (s *service) followUp(ctx context.Context, tx core.Tx, _ inbox.Message) error {
	_, err := s.outbox.Publish(ctx, tx, core.Event{Type: "invoice.sent", Topic: "invoices"})
	return err
}

func TestSpansAreLinked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, oteloutbox.TracesConfig{System: "kafka", Systems: map[string]string{"mail": "rabbitmq"}})
		id := core.NewEventID()
		if err := s.request(t.Context(), core.Event{
			ID: id, Type: "order.placed", Topic: "orders", Key: "order/7",
		}); err != nil {
			t.Fatal(err)
		}
		s.relay(10 * time.Second)
		msg := s.messages()[0]
		msg.Partition, msg.Offset, msg.Located = 3, 1042, true
		if res := s.inbox.Process(t.Context(), msg, s.followUp); res.Action != inbox.Ack {
			t.Fatal(res.Err)
		}
		if res := s.inbox.Process(t.Context(), msg, s.followUp); res.Action != inbox.Ack {
			t.Fatal(res.Err)
		}
		s.want(
			"create orders: producer, child of POST /orders",
			"POST /orders: server",
			"client: internal, child of send orders",
			"send orders: client, linked to create orders",
			"create invoices: producer, child of process orders",
			"process orders: consumer, linked to create orders",
			"process orders: consumer, linked to create orders",
		)
		s.has("create orders", map[string]string{
			"messaging.system": "kafka", "messaging.operation.name": "create", "messaging.operation.type": "create",
			"messaging.destination.name": "orders", "messaging.message.id": id, "outbox.event.type": "order.placed",
		})
		s.has("send orders", map[string]string{
			"messaging.system": "kafka", "messaging.operation.name": "send", "messaging.operation.type": "send",
			"messaging.destination.name": "orders", "messaging.message.id": id, "outbox.event.type": "order.placed",
			"messaging.kafka.message.key": "order/7", "outbox.attempt": "1", "outbox.path": "cold",
		})
		link := s.span("send orders").Links[0].Attributes
		if len(link) != 1 || link[0] != attribute.String("messaging.message.id", id) {
			t.Errorf("the link of send has the attributes %v", link)
		}
		process := map[string]string{
			"messaging.system": "kafka", "messaging.operation.name": "process", "messaging.operation.type": "process",
			"messaging.destination.name": "orders", "messaging.message.id": id, "inbox.consumer": "billing",
			"messaging.destination.partition.id": "3", "messaging.kafka.offset": "1042", "inbox.outcome": "duplicate",
		}
		s.has("process orders", process)
		if got := s.sent[0].Headers["traceparent"]; !strings.Contains(got,
			s.span("create orders").SpanContext.SpanID().String()) {
			t.Errorf("the broker got the traceparent %q", got)
		}
	})
}

func TestOneTraceFromTheRequestToTheConsumer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, oteloutbox.TracesConfig{CreationContextAsParent: true})
		if err := s.request(t.Context(), core.Event{Type: "order.placed", Topic: "orders"}); err != nil {
			t.Fatal(err)
		}
		s.relay(10 * time.Second)
		ctx, ambient := s.provider.Tracer("broker").Start(t.Context(), "poll")
		if res := s.inbox.Process(ctx, s.messages()[0], s.followUp); res.Action != inbox.Ack {
			t.Fatal(res.Err)
		}
		ambient.End()
		s.want(
			"create orders: producer, child of POST /orders",
			"POST /orders: server",
			"client: internal, child of send orders",
			"send orders: client, child of create orders",
			"create invoices: producer, child of process orders",
			"process orders: consumer, child of create orders, linked to poll",
			"poll: internal",
		)
	})
}

// A refusal is recorded without the password, and the next attempt does not lengthen the trace.
func TestRefusalsAreRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, oteloutbox.TracesConfig{CreationContextAsParent: true})
		refused := false
		s.refuse = func(d core.Delivery) error {
			if d.Type == "b" && !refused {
				refused = true
				return core.Transient(errors.New("refused, password=hunter2"))
			}
			return nil
		}
		// The acknowledgement of the first event shows that the destination works.
		if err := s.request(t.Context(), core.Event{Type: "a", Topic: "orders", Key: "k"},
			core.Event{Type: "b", Topic: "orders", Key: "k"}); err != nil {
			t.Fatal(err)
		}
		s.relay(10 * time.Second)
		s.want(
			"create orders: producer, child of POST /orders",
			"create orders: producer, child of POST /orders",
			"POST /orders: server",
			"client: internal, child of send orders",
			"send orders: client, child of create orders",
			"client: internal, child of send orders",
			"send orders: client, child of create orders, error refused, password=***",
			"client: internal, child of send orders",
			"send orders: client, linked to create orders",
		)
		failed := s.exporter.GetSpans()[6]
		if len(failed.Events) != 1 || failed.Events[0].Name != "exception" {
			t.Errorf("the events of the refused send are %v", failed.Events)
		}
		if !slices.Contains(failed.Attributes, attribute.String("error.type", "transient")) {
			t.Errorf("the attributes of the refused send are %v", failed.Attributes)
		}
	})
}

// A trace that the caller put into the headers stays, and there is no span for the creation.
func TestContextOfTheCallerIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, cfg := range map[string]oteloutbox.TracesConfig{
			"linked": {}, "child": {CreationContextAsParent: true},
		} {
			const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
			s := newService(t, cfg)
			if err := s.request(t.Context(), core.Event{
				Type: "a", Headers: map[string]string{"traceparent": parent},
			}); err != nil {
				t.Fatal(err)
			}
			s.relay(10 * time.Second)
			if got := s.sent[0].Headers["traceparent"]; got != parent {
				t.Errorf("%s: the broker got the traceparent %q", name, got)
			}
			if n := len(s.exporter.GetSpans()); n != 3 {
				t.Errorf("%s: %d spans, want the request, the send and that of the client", name, n)
			}
			send := s.span("send a")
			origin := send.Parent
			if name == "linked" {
				origin = send.Links[0].SpanContext
			}
			if origin.SpanID().String() != "b7ad6b7169203331" || send.SpanKind != trace.SpanKindClient {
				t.Errorf("%s: the send belongs to %s and is a %s", name, origin.SpanID(), send.SpanKind)
			}
		}
	})
}

// An event from a process without traces begins its trace in the relay.
func TestEventWithoutATraceBeginsOneInTheRelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, oteloutbox.TracesConfig{})
		plain, err := core.New(core.Config{Repository: s.table})
		if err != nil {
			t.Fatal(err)
		}
		err = s.table.Transactor().RunInTx(t.Context(), func(ctx context.Context, tx core.Tx) error {
			_, err := plain.Publish(ctx, tx, core.Event{Type: "a"})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		s.relay(10 * time.Second)
		if res := s.inbox.Process(t.Context(), s.messages()[0], func(context.Context, core.Tx, inbox.Message) error {
			return nil
		}); res.Action != inbox.Ack {
			t.Fatal(res.Err)
		}
		s.want("client: internal, child of send a", "send a: producer", "process a: consumer, linked to send a")
		for _, row := range s.table.Rows() {
			if row.Event.Headers["traceparent"] != "" {
				t.Error("the relay changed the row")
			}
		}
	})
}

func TestWithoutCreateSpanTheEventCarriesTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, oteloutbox.TracesConfig{WithoutCreateSpan: true})
		if err := s.request(t.Context(), core.Event{Type: "a"}); err != nil {
			t.Fatal(err)
		}
		s.relay(10 * time.Second)
		s.want("POST /orders: server", "client: internal, child of send a", "send a: client, linked to POST /orders")
	})
}

// Baggage travels only if it was asked for.
func TestBaggageIsOptIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		member, err := baggage.NewMember("tenant", "acme")
		if err != nil {
			t.Fatal(err)
		}
		bag, err := baggage.New(member)
		if err != nil {
			t.Fatal(err)
		}
		for want, propagator := range map[string]propagation.TextMapPropagator{
			"": nil,
			"acme": propagation.NewCompositeTextMapPropagator(propagation.TraceContext{},
				propagation.Baggage{}),
		} {
			s := newService(t, oteloutbox.TracesConfig{Propagator: propagator})
			if err := s.request(baggage.ContextWithBaggage(t.Context(), bag), core.Event{Type: "a"}); err != nil {
				t.Fatal(err)
			}
			s.relay(10 * time.Second)
			got := "not run"
			s.inbox.Process(t.Context(), s.messages()[0], func(ctx context.Context, _ core.Tx, _ inbox.Message) error {
				got = baggage.FromContext(ctx).Member("tenant").Value()
				return nil
			})
			if got != want {
				t.Errorf("the handler found the baggage %q, want %q", got, want)
			}
		}
	})
}

func broken(context.Context, core.Tx, inbox.Message) error { panic("broken") }

// Each outcome of the inbox is on its span, and a failure has its error.
func TestOutcomesOfTheInbox(t *testing.T) {
	s := newService(t, oteloutbox.TracesConfig{})
	run := func(id string, h inbox.Handler) string {
		s.exporter.Reset()
		func() {
			defer func() { _ = recover() }()
			s.inbox.Process(t.Context(), inbox.Message{ID: id, Topic: "orders"}, h)
		}()
		span := s.span("process orders")
		for _, a := range span.Attributes {
			if a.Key == oteloutbox.OutcomeKey {
				return strings.TrimSuffix(a.Value.AsString()+", "+span.Status.Description, ", ")
			}
		}
		return "none"
	}
	for _, tt := range []struct {
		id, want string
		h        inbox.Handler
	}{
		{"1", "processed", func(context.Context, core.Tx, inbox.Message) error { return nil }},
		{"1", "duplicate", nil},
		{"2", "failed, down", func(context.Context, core.Tx, inbox.Message) error {
			return core.Unavailable(errors.New("down"))
		}},
		{"3", "dead, inbox: event is dead (attempts: 1): no", func(context.Context, core.Tx, inbox.Message) error {
			return core.Permanent(errors.New("no"))
		}},
		{"4", "failed, inbox: the handler panicked or called runtime.Goexit", broken},
	} {
		if got := run(tt.id, tt.h); got != tt.want {
			t.Errorf("message %s: outcome %q, want %q", tt.id, got, tt.want)
		}
	}
}

// A batch has one span, with a link for each message that has a trace.
func TestBatchHasOneSpan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, oteloutbox.TracesConfig{CreationContextAsParent: true})
		if err := s.request(t.Context(), core.Event{Type: "a", Topic: "orders"},
			core.Event{Type: "b", Topic: "orders"}); err != nil {
			t.Fatal(err)
		}
		s.relay(10 * time.Second)
		s.exporter.Reset()
		s.inbox.ProcessBatch(t.Context(), append(s.messages(), inbox.Message{ID: "no-trace", Topic: "orders"}),
			func(ctx context.Context, tx core.Tx, fresh []inbox.Message) error {
				return s.followUp(ctx, tx, fresh[0])
			})
		s.want("create invoices: producer, child of process orders", "process orders: consumer, linked to , linked to ")
		s.has("process orders", map[string]string{
			"messaging.system": "outbox", "messaging.operation.name": "process", "messaging.operation.type": "process",
			"messaging.destination.name": "orders", "messaging.batch.message_count": "3", "inbox.consumer": "billing",
			"inbox.outcome": "processed",
		})
	})
}

// A relay that finds nothing makes no span and writes nothing to the log.
func TestIdlePollsLeaveNoTrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, oteloutbox.TracesConfig{})
		s.relay(10 * time.Minute)
		s.want()
		if s.log.Len() > 0 {
			t.Errorf("the log has\n%s", s.log)
		}
	})
}

// A transaction that refuses its event has the error on the span of its creation.
func TestRefusedInsertIsRecorded(t *testing.T) {
	s := newService(t, oteloutbox.TracesConfig{})
	id := core.NewEventID()
	for range 2 {
		s.exporter.Reset()
		_ = s.request(t.Context(), core.Event{ID: id, Type: "a"})
	}
	if got := s.span("create a").Status.Description; !strings.Contains(got, id) {
		t.Errorf("the error of the creation is %q", got)
	}
}

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
