// Package tracing_test follows a request through the outbox, Kafka and the inbox.
package monitoring

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/ormoutbox/ormoutbox/core"
	coreinbox "github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/inbox/sqlinbox"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/inbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/topics"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
	"github.com/ormoutbox/ormoutbox/oteloutbox"
	"github.com/ormoutbox/ormoutbox/watermillbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/kafkabridge"
)

// shop is a service with an HTTP handler, an outbox that publishes to Kafka, and a consumer that
// publishes another event.
type shop struct {
	t                *testing.T
	exporter         *tracetest.InMemoryExporter
	tracer           trace.Tracer
	process          *fixture.Process
	orders, invoices string
}

func newShop(t *testing.T, cfg oteloutbox.TracesConfig) *shop {
	t.Helper()
	s := &shop{t: t, exporter: tracetest.NewInMemoryExporter()}
	s.orders, s.invoices = topics.Kafka(t, "", 1, nil), topics.Kafka(t, "", 1, nil)
	provider := sdk.NewTracerProvider(sdk.WithSyncer(s.exporter))
	s.tracer = provider.Tracer("shop")
	cfg.TracerProvider, cfg.System = provider, "kafka"
	traces := oteloutbox.NewTraces(cfg)
	s.process = fixture.NewProcess(t, testdb.Postgres(t), core.Config{
		Publisher: topics.KafkaPublisher(t, kafkabridge.Config{PublishTimeout: time.Minute}), Tracer: traces.Outbox(),
		// A publish that is given up because the machine is slow would have two spans.
		Relay: relay.Config{PublishTimeout: time.Minute, HotLease: 2 * time.Minute, ClaimLease: 2 * time.Minute},
	})
	s.process.Run()

	produced, err := watermillbridge.NewOutboxPublisher(s.process.Outbox, watermillbridge.OutboxConfig{})
	fixture.NoError(t, err)
	in, err := coreinbox.New(coreinbox.Config{
		Consumer: "billing", Transactor: s.process.Tx, Tracer: traces.Inbox(),
		Store: fixture.NewInboxStore(t, s.process.Pool, sqlinbox.Config{Dialect: core.Postgres}),
	})
	fixture.NoError(t, err)
	s.consume(inbox.Wrap(in, inbox.Publisher(produced), inbox.ReturnDead()))
	return s
}

// located says where Kafka has the message.
func located(h message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		p, _ := kafka.MessagePartitionFromCtx(msg.Context())
		o, _ := kafka.MessagePartitionOffsetFromCtx(msg.Context())
		msg.Metadata.Set(core.HeaderSource, fmt.Sprintf("%s/%d/%d", message.SubscribeTopicFromCtx(msg.Context()), p, o))
		return h(msg)
	}
}

// consume answers each order with an invoice.
func (s *shop) consume(dedup message.HandlerMiddleware) {
	s.t.Helper()
	cfg := kafka.DefaultSaramaSubscriberConfig()
	cfg.Consumer.Offsets.Initial = sarama.OffsetOldest
	sub, err := kafka.NewSubscriber(kafka.SubscriberConfig{
		Brokers: []string{topics.KafkaAddress(s.t)}, Unmarshaler: kafka.DefaultMarshaler{}, OverwriteSaramaConfig: cfg,
	}, watermill.NopLogger{})
	fixture.NoError(s.t, err)
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: 10 * time.Second}, watermill.NopLogger{})
	fixture.NoError(s.t, err)
	router.AddMiddleware(located, dedup)
	router.AddHandler("invoice", s.orders, sub, s.invoices, nothing{},
		func(msg *message.Message) ([]*message.Message, error) {
			_, span := s.tracer.Start(msg.Context(), "write invoice")
			span.End()
			invoice := message.NewMessage(watermill.NewUUID(), []byte(`{}`))
			invoice.Metadata.Set("event_type", "invoice.sent")
			return []*message.Message{invoice}, nil
		})
	done := make(chan error, 1)
	go func() { done <- router.Run(context.Background()) }()
	s.t.Cleanup(func() {
		if err := router.Close(); err != nil {
			s.t.Error(err)
		}
		if err := <-done; err != nil {
			s.t.Error(err)
		}
	})
	<-router.Running()
}

// nothing is the publisher of the Router. It must get no message, because the inbox uses the
// outbox.
type nothing struct{}

func (nothing) Publish(topic string, msgs ...*message.Message) error {
	if len(msgs) > 0 {
		return fmt.Errorf("the Router publishes %d messages to %s", len(msgs), topic)
	}
	return nil
}

func (nothing) Close() error { return nil }

// ServeHTTP accepts an order.
func (s *shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, span := s.tracer.Start(r.Context(), "POST /orders", trace.WithSpanKind(trace.SpanKindServer))
	defer span.End()
	err := s.process.Tx.RunInTx(ctx, func(ctx context.Context, tx core.Tx) error {
		return s.process.Deposit(ctx, tx, 7, core.Event{
			Type: "order.placed", Topic: s.orders, AggregateType: "order", AggregateID: "7", Payload: []byte("{}"),
		})
	})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// lines describes the spans, sorted by name. It marks the spans of the request's trace.
func (s *shop) lines() (lines []string) {
	spans := s.exporter.GetSpans()
	name := map[trace.SpanID]string{}
	var request trace.TraceID
	for _, span := range spans {
		name[span.SpanContext.SpanID()] = span.Name
		if span.SpanKind == trace.SpanKindServer {
			request = span.SpanContext.TraceID()
		}
	}
	for _, span := range spans {
		line := fmt.Sprintf("%s: %s", span.Name, span.SpanKind)
		if span.Parent.IsValid() {
			line += ", child of " + name[span.Parent.SpanID()]
		}
		for _, link := range span.Links {
			line += ", linked to " + name[link.SpanContext.SpanID()]
		}
		if span.SpanContext.TraceID() == request {
			line += " (trace of the request)"
		}
		lines = append(lines, strings.NewReplacer(s.orders, "orders", s.invoices, "invoices").Replace(line))
	}
	slices.Sort(lines)
	return lines
}

// A request, its event in the table and in Kafka, the consumer, and the consumer's own event are
// one trace, or traces that are linked.
func TestTraceThroughKafka(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		cfg  oteloutbox.TracesConfig
		want []string
	}{
		"one trace": {oteloutbox.TracesConfig{CreationContextAsParent: true}, []string{
			"POST /orders: server (trace of the request)",
			"create invoices: producer, child of process orders (trace of the request)",
			"create orders: producer, child of POST /orders (trace of the request)",
			"process orders: consumer, child of create orders (trace of the request)",
			"send invoices: client, child of create invoices (trace of the request)",
			"send orders: client, child of create orders (trace of the request)",
			"write invoice: internal, child of process orders (trace of the request)",
		}},
		"linked": {oteloutbox.TracesConfig{}, []string{
			"POST /orders: server (trace of the request)",
			"create invoices: producer, child of process orders",
			"create orders: producer, child of POST /orders (trace of the request)",
			"process orders: consumer, linked to create orders",
			"send invoices: client, linked to create invoices",
			"send orders: client, linked to create orders",
			"write invoice: internal, child of process orders",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, tt.cfg)
			server := httptest.NewServer(s)
			defer server.Close()
			res, err := http.Post(server.URL, "application/json", nil)
			fixture.NoError(t, err)
			defer res.Body.Close()
			if res.StatusCode != http.StatusOK {
				t.Fatal(res.Status)
			}
			fixture.Await(t, "all spans have ended", func() bool { return len(s.lines()) >= len(tt.want) })
			s.process.AwaitDone(2)
			if got := s.lines(); !slices.Equal(got, tt.want) {
				t.Errorf("the spans are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(tt.want, "\n"))
			}
		})
	}
}
