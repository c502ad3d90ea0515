package oteloutbox

import (
	"cmp"
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/metrics"
	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/once/command"
	"github.com/ormoutbox/ormoutbox/core/once/httpkey"
)

// MetricsConfig configures a Metrics. Its zero value works.
type MetricsConfig struct {
	// MeterProvider makes the instruments. Default: otel.GetMeterProvider(), when NewMetrics is
	// called.
	MeterProvider metric.MeterProvider
	// Topics have their series from the start, at zero: an alert on a rate works before the first
	// event. Series of other topics begin with their first event.
	Topics []string
	// Types are event types that have their series from the start, as Topics have.
	Types []string
	// MaxLabels is how many different values each attribute may have: topics, event types,
	// handlers, routes. Further ones count as "_other". Default: 100. Topics and Types have theirs
	// in any case.
	MaxLabels int

	// Messaging adds the metrics that the conventions of OpenTelemetry name for every client of a
	// broker: messaging.client.sent.messages, messaging.client.operation.duration,
	// messaging.client.consumed.messages and messaging.process.duration. Leave it off where the
	// client of the broker has them already: each message would count twice. The conventions are in
	// development, so these names may change with a later version of this module.
	Messaging bool
	// System is the attribute messaging.system of these: kafka, rabbitmq, nats, redis. Systems sets
	// it for single topics, for a Router with several brokers. Default: "outbox".
	System  string
	Systems map[string]string

	// BacklogEvery is how old the gauges of Watch may be. A collection that finds them older asks
	// the database. Default: 15 s, and longer while a query takes longer than 150 ms: a hundred
	// times as long as it takes, so that it costs at most one percent of a connection.
	BacklogEvery time.Duration
	// BacklogTimeout is how long a collection waits for the database, for each query, and half of
	// how long it waits for all of them. Default: 2 s.
	BacklogTimeout time.Duration
}

// Metrics counts its observers' callbacks. Make it with NewMetrics. It is safe for use by several
// goroutines.
type Metrics struct {
	set       *metrics.Set
	messaging *messaging // nil without MetricsConfig.Messaging
}

// NewMetrics makes the instruments. An instrument that the provider refuses is missing, and its
// error goes to the handler of otel.SetErrorHandler.
func NewMetrics(cfg MetricsConfig) *Metrics {
	if cfg.MeterProvider == nil {
		cfg.MeterProvider = otel.GetMeterProvider()
	}
	if cfg.MaxLabels <= 0 {
		cfg.MaxLabels = 100
	}
	cfg.System = cmp.Or(cfg.System, "outbox")
	m := meter{cfg.MeterProvider.Meter(scopeName)}
	set := metrics.New(m, metrics.Config{
		Topics: cfg.Topics, Types: cfg.Types, MaxLabels: cfg.MaxLabels,
		BacklogEvery: cfg.BacklogEvery, BacklogTimeout: cfg.BacklogTimeout,
	})
	m.watched(set)
	all := &Metrics{set: set}
	if cfg.Messaging {
		all.messaging = newMessaging(cfg, m)
	}
	return all
}

// Outbox returns the observer of core.Config, and of Config.Observer of each adapter. Join it with
// an observer of your own by core.TeeObserver.
func (m *Metrics) Outbox() *core.Observer {
	if m.messaging == nil {
		return m.set.Outbox()
	}
	return core.TeeObserver(m.set.Outbox(), &core.Observer{Published: m.messaging.published})
}

// Inbox returns the observer of inbox.Config.
func (m *Metrics) Inbox() *inbox.Observer {
	if m.messaging == nil {
		return m.set.Inbox()
	}
	return m.messaging.inbox(m.set.Inbox())
}

// Keys returns the observer of once.Config.
func (m *Metrics) Keys() *once.Observer { return m.set.Keys() }

// HTTP returns the observer of httpkey.Config. Attribute route is httpkey.Info.Route, never the
// key.
func (m *Metrics) HTTP() func(httpkey.Info) { return m.set.HTTP() }

// Effects returns the observer of command.WorkerConfig.
func (m *Metrics) Effects() func(command.ExecInfo) { return m.set.Effects() }

// Watch adds the gauges of an outbox: outbox.backlog.messages, outbox.backlog.oldest.age,
// outbox.blocked.keys, outbox.pauses, outbox.rate.limits and outbox.unrelayed.topics. They are the
// table's, so each process that watches it reports the same: use the maximum, not the sum. They are
// missing while their query fails. Watch also counts the rows that the audit table gets from now
// on, whichever process writes them: outbox.audit.rows. A second call replaces the outbox.
func (m *Metrics) Watch(outbox metrics.Backlogger) { m.set.Watch(outbox) }

// WatchTypes adds outbox.type.backlog.messages, the backlog of an outbox by event type: of each of
// MetricsConfig.Types, and of all others together as "_other". The database is asked at most every
// fourth time that it is asked for the gauges of Watch, and reads up to 300,000 rows then: call it
// only if the result is used. The rest is as for Watch.
func (m *Metrics) WatchTypes(backlog func(context.Context) ([]core.TypeBacklog, error)) {
	m.set.WatchTypes(backlog)
}

// WatchLog adds the gauges of readers of PostgreSQL's log (*walrelay.Relay), each with the
// attribute slot: outbox.log.behind, outbox.log.kept, outbox.log.slot.active, outbox.log.slot.lost,
// outbox.log.repairing; outbox.log.safe if max_slot_wal_keep_size bounds the slot; and
// outbox.log.spilled.keys in the process that reads it. Any process may watch. If two have the same
// slot, the first one counts; outbox.backlog.errors counts the other. A second call replaces all
// relays. The rest is as for Watch.
func (m *Metrics) WatchLog(backlogs ...func(context.Context) (core.LogBacklog, error)) {
	m.set.WatchLog(backlogs...)
}

// WatchInbox adds the gauges of the tables of an inbox, with backlog of (*inbox.Inbox).Backlog:
// inbox.backlog.messages and inbox.backlog.oldest.age, for each handler of each consumer in the tables.
// A dead message stays in them until a person redrives or discards it. The rest is as for Watch.
func (m *Metrics) WatchInbox(backlog func(context.Context) ([]inbox.Backlog, error)) {
	m.set.WatchInbox(backlog)
}

// WatchEffects adds the gauges of a table of effects: effect.backlog.messages and
// effect.backlog.oldest.age, for each channel with effects that are not completed. The rest is as
// for Watch.
func (m *Metrics) WatchEffects(backlog func(context.Context) ([]command.Backlog, error)) {
	m.set.WatchEffects(backlog)
}

// meter makes the instruments of package metrics.
type meter struct{ metric.Meter }

// Counter implements metrics.Meter.
func (m meter) Counter(d metrics.Desc) func(values ...string) metrics.Counter {
	c, err := m.Float64Counter(d.OTelName(), metric.WithDescription(d.Help), metric.WithUnit(d.Unit()))
	report(err)
	return func(values ...string) metrics.Counter {
		s := counter{c, attributes(d, values)}
		s.Add(0)
		return s
	}
}

// Gauge implements metrics.Meter.
func (m meter) Gauge(d metrics.Desc) func(values ...string) metrics.Gauge {
	g, err := m.Float64Gauge(d.OTelName(), metric.WithDescription(d.Help), metric.WithUnit(d.Unit()))
	report(err)
	return func(values ...string) metrics.Gauge {
		s := gauge{g, attributes(d, values)}
		s.Set(0)
		return s
	}
}

// Histogram implements metrics.Meter.
func (m meter) Histogram(d metrics.Desc) func(values ...string) metrics.Histogram {
	h, err := m.Float64Histogram(d.OTelName(), metric.WithDescription(d.Help), metric.WithUnit(d.Unit()),
		metric.WithExplicitBucketBoundaries(d.Buckets...))
	report(err)
	return func(values ...string) metrics.Histogram { return histogram{h, attributes(d, values)} }
}

// watched makes the gauges that come from the database.
func (m meter) watched(set *metrics.Set) {
	gauges := map[string]metric.Float64ObservableGauge{}
	var all []metric.Observable
	for _, d := range metrics.Watched() {
		g, err := m.Float64ObservableGauge(d.OTelName(), metric.WithDescription(d.Help), metric.WithUnit(d.Unit()))
		report(err)
		gauges[d.Name] = g
		all = append(all, g)
	}
	_, err := m.RegisterCallback(func(ctx context.Context, o metric.Observer) error {
		for _, s := range set.Samples(ctx) {
			o.ObserveFloat64(gauges[s.Desc.Name], s.Value, attributes(s.Desc, s.Values))
		}
		return nil
	}, all...)
	report(err)
}

func report(err error) {
	if err != nil {
		otel.Handle(errors.Join(errors.New("oteloutbox: a metric is missing"), err))
	}
}

// attributes returns the labels of a series.
func attributes(d metrics.Desc, values []string) metric.MeasurementOption {
	set := make([]attribute.KeyValue, len(values))
	for n, value := range values {
		set[n] = attribute.String(d.Labels[n], value)
	}
	return metric.WithAttributeSet(attribute.NewSet(set...))
}

type counter struct {
	metric.Float64Counter
	series metric.MeasurementOption
}

// Add implements metrics.Counter.
func (c counter) Add(n float64) { c.Float64Counter.Add(context.Background(), n, c.series) }

type gauge struct {
	metric.Float64Gauge
	series metric.MeasurementOption
}

// Set implements metrics.Gauge.
func (g gauge) Set(v float64) { g.Record(context.Background(), v, g.series) }

type histogram struct {
	metric.Float64Histogram
	series metric.MeasurementOption
}

// Observe implements metrics.Histogram.
func (h histogram) Observe(v float64) { h.Record(context.Background(), v, h.series) }
