package oteloutbox_test

import (
	"context"
	"fmt"
	"log"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/inbox/inboxtest"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/oteloutbox"
)

// An outbox and a consumer with traces. A service has an exporter to its collector in place of the
// one in memory.
func Example() {
	spans := tracetest.NewInMemoryExporter()
	provider := sdk.NewTracerProvider(sdk.WithSyncer(spans))
	traces := oteloutbox.NewTraces(oteloutbox.TracesConfig{TracerProvider: provider, System: "kafka"})

	table := outboxtest.NewRepository()
	outbox, err := core.New(core.Config{Repository: table, Tracer: traces.Outbox()})
	if err != nil {
		log.Fatal(err)
	}
	consumer, err := inbox.New(inbox.Config{
		Consumer: "billing", Handler: "invoice", Transactor: table.Transactor(), Store: inboxtest.NewStore(),
		Tracer: traces.Inbox(),
	})
	if err != nil {
		log.Fatal(err)
	}

	ctx := context.Background()
	err = table.Transactor().RunInTx(ctx, func(ctx context.Context, tx core.Tx) error {
		_, err := outbox.Publish(ctx, tx, core.Event{Type: "order.placed", Topic: "orders"})
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
	event := table.Rows()[0].Event // in a service, the relay and the broker bring it
	consumer.Process(ctx, inbox.Message{ID: event.ID, Topic: "orders", Headers: event.Headers},
		func(context.Context, core.Tx, inbox.Message) error { return nil })

	for _, span := range spans.GetSpans() {
		fmt.Println(span.SpanKind, span.Name, "links:", len(span.Links))
	}
	// Output:
	// producer create orders links: 0
	// consumer process orders links: 1
}

// slot is what a *walrelay.Relay tells about its slot.
type slot struct{}

func (slot) LogBacklog(context.Context) (core.LogBacklog, error) {
	return core.LogBacklog{Slot: "outbox", Known: true, Active: true, Behind: 4096}, nil
}

// The gauges of a relay that reads the log of PostgreSQL.
func ExampleMetrics_WatchLog() {
	reader := sdkmetric.NewManualReader()
	metrics := oteloutbox.NewMetrics(oteloutbox.MetricsConfig{
		MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)),
	})
	metrics.WatchLog(slot{}.LogBacklog) // in a service: that of the *walrelay.Relay

	var collected metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &collected); err != nil {
		log.Fatal(err)
	}
	for _, m := range collected.ScopeMetrics[0].Metrics {
		if data, ok := m.Data.(metricdata.Gauge[float64]); ok && m.Name == "outbox.log.behind" {
			name, _ := data.DataPoints[0].Attributes.Value("slot")
			fmt.Println(m.Name, m.Unit, name.AsString(), data.DataPoints[0].Value)
		}
	}
	// Output: outbox.log.behind By outbox 4096
}

// The metrics of an outbox. A service has a reader that exports them in place of the manual one.
func ExampleNewMetrics() {
	reader := sdkmetric.NewManualReader()
	metrics := oteloutbox.NewMetrics(oteloutbox.MetricsConfig{
		MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)), Topics: []string{"orders"},
	})
	table := outboxtest.NewRepository()
	outbox, err := core.New(core.Config{Repository: table, Observer: metrics.Outbox()})
	if err != nil {
		log.Fatal(err)
	}
	metrics.Watch(outbox)

	ctx := context.Background()
	err = table.Transactor().RunInTx(ctx, func(ctx context.Context, tx core.Tx) error {
		_, err := outbox.Publish(ctx, tx, core.Event{Type: "order.placed", Topic: "orders"})
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
	var collected metricdata.ResourceMetrics
	if err := reader.Collect(ctx, &collected); err != nil {
		log.Fatal(err)
	}
	for _, m := range collected.ScopeMetrics[0].Metrics {
		if data, ok := m.Data.(metricdata.Gauge[float64]); ok && m.Name == "outbox.backlog.messages" {
			for _, point := range data.DataPoints {
				state, _ := point.Attributes.Value("state")
				fmt.Println(m.Name, state.AsString(), point.Value)
			}
		}
	}
	// Unordered output:
	// outbox.backlog.messages pending 1
	// outbox.backlog.messages dead 0
}
