// Package promoutbox gives the metrics of an outbox, an inbox, idempotency keys and effects to
// Prometheus.
//
// One Metrics is a prometheus.Collector and has the observers of all four:
//
//	m := promoutbox.New(promoutbox.Config{Topics: []string{"orders"}})
//	prometheus.MustRegister(m)
//
//	outbox, err := core.New(core.Config{Repository: repo, Publisher: publisher, Observer: m.Outbox()})
//	...
//	m.Watch(outbox) // the gauges of the backlog
//
// The observers count without a query. Only the gauges of Watch ask the database, and only when
// somebody scrapes: at most once in BacklogEvery, with counts that stop at a limit.
//
// Labels are bounded. A topic, a handler or a route beyond the limit counts as "_other".
package promoutbox
