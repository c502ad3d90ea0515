// Package metrics defines the metrics of an outbox, an inbox, idempotency keys and effects, and
// counts their observers' callbacks. Modules promoutbox and oteloutbox give them to Prometheus and
// OpenTelemetry. For another library, implement Meter:
//
//	set := metrics.New(meter, metrics.Config{Topics: []string{"orders"}})
//	outbox, err := core.New(core.Config{..., Observer: set.Outbox()})
package metrics
