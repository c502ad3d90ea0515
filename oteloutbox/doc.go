// Package oteloutbox gives the traces and the metrics of an outbox and an inbox to OpenTelemetry.
//
// # Traces
//
// One Traces has the tracers of both:
//
//	traces := oteloutbox.NewTraces(oteloutbox.TracesConfig{System: "kafka"})
//
//	outbox, err := core.New(core.Config{Repository: repo, Publisher: publisher, Tracer: traces.Outbox()})
//	consumer, err := inbox.New(inbox.Config{Consumer: "billing", ..., Tracer: traces.Inbox()})
//
// Publish makes a span "create {topic}" for each event, and the event carries its context in the
// table and through the broker. The relay makes a span "send {topic}" for each call of the
// publisher, and the inbox a span "process {topic}". Both are linked to the span that created the
// event, or are its children: see TracesConfig.CreationContextAsParent. A poll that finds nothing
// makes no span.
//
// The spans follow the semantic conventions of OpenTelemetry for messaging, version 1.43.
//
// # Metrics
//
// One Metrics has the observers of the outbox, the inbox, idempotency keys and effects:
//
//	metrics := oteloutbox.NewMetrics(oteloutbox.MetricsConfig{Topics: []string{"orders"}})
//
//	outbox, err := core.New(core.Config{Repository: repo, Publisher: publisher, Observer: metrics.Outbox()})
//	...
//	metrics.Watch(outbox) // the gauges of the backlog
//
// The metrics are the same as module promoutbox's, under the names that an exporter for Prometheus
// turns into the names of promoutbox: package core/metrics has the rule.
package oteloutbox
