// Package metrics says which metrics an outbox, an inbox, idempotency keys and effects have, and
// counts what their observers are told. Modules promoutbox and oteloutbox give them to Prometheus
// and OpenTelemetry. For another library, implement Meter:
//
//	set := metrics.New(meter, metrics.Config{Topics: []string{"orders"}})
//	outbox, err := core.New(core.Config{..., Observer: set.Outbox()})
package metrics
