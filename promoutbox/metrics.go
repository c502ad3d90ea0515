package promoutbox

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/metrics"
	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/once/command"
	"github.com/ormoutbox/ormoutbox/core/once/httpkey"
)

// Config of a Metrics. Its zero value works.
type Config struct {
	// Topics have their series from the start, at zero: an alert on a rate works before the first
	// event. Series of other topics begin with their first event.
	Topics []string
	// Types are event types that have their series from the start, as Topics have, and series of
	// their own in WatchTypes.
	Types []string
	// MaxLabels is how many different values each label may have: topics, event types, handlers,
	// routes. Further ones count as "_other". Default: 100. Topics and Types have theirs in any
	// case.
	MaxLabels int
	// ConstLabels are on every series. Two Metrics of one process need different ones.
	ConstLabels prometheus.Labels

	// BacklogEvery is how old the gauges of Watch may be. A scrape that finds them older asks the
	// database. Default: 15 s, and longer while a query takes longer than 150 ms: a hundred times
	// as long as it takes, so that it costs at most one percent of a connection.
	BacklogEvery time.Duration
	// BacklogTimeout is how long a scrape waits for the database, for each query, and half of how
	// long it waits for all of them. Default: 2 s.
	BacklogTimeout time.Duration
}

// Metrics counts its observers' callbacks. Make it with New. It is safe for use by several
// goroutines.
type Metrics struct {
	set *metrics.Set

	watched map[string]*prometheus.Desc // the gauges that come from the database, by name

	all []prometheus.Collector
}

var _ prometheus.Collector = (*Metrics)(nil)

// New makes a Metrics. Register it with a prometheus.Registerer.
func New(cfg Config) *Metrics {
	m := &Metrics{watched: map[string]*prometheus.Desc{}}
	f := &factory{labels: cfg.ConstLabels, made: &m.all}
	for _, d := range metrics.Watched() {
		m.watched[d.Name] = f.desc(d)
	}
	m.set = metrics.New(f, metrics.Config{
		Topics: cfg.Topics, Types: cfg.Types, MaxLabels: cfg.MaxLabels,
		BacklogEvery: cfg.BacklogEvery, BacklogTimeout: cfg.BacklogTimeout,
	})
	return m
}

// Outbox returns the observer of core.Config, and of Config.Observer of each adapter. Join it with
// an observer of your own by core.TeeObserver.
func (m *Metrics) Outbox() *core.Observer { return m.set.Outbox() }

// Inbox returns the observer of inbox.Config.
func (m *Metrics) Inbox() *inbox.Observer { return m.set.Inbox() }

// Keys returns the observer of once.Config.
func (m *Metrics) Keys() *once.Observer { return m.set.Keys() }

// HTTP returns the observer of httpkey.Config. Label route is httpkey.Info.Route, never the key.
func (m *Metrics) HTTP() func(httpkey.Info) { return m.set.HTTP() }

// Effects returns the observer of command.WorkerConfig.
func (m *Metrics) Effects() func(command.ExecInfo) { return m.set.Effects() }

// Watch adds the gauges of an outbox: outbox_backlog_messages, outbox_backlog_oldest_age_seconds,
// outbox_blocked_keys, outbox_pauses, outbox_rate_limits and outbox_unrelayed_topics. They are the
// table's, so each process that watches it reports the same. While a query fails its gauges are
// missing, because an old figure would hide an outage; outbox_backlog_errors_total counts the
// failures. Watch also counts the rows that the audit table gets from now on, whichever process
// writes them: outbox_audit_rows_total. A second call replaces the outbox.
func (m *Metrics) Watch(outbox metrics.Backlogger) { m.set.Watch(outbox) }

// WatchTypes adds outbox_type_backlog_messages, the backlog of an outbox by event type: of each of
// Config.Types, and of all others together as "_other". The database is asked at most every fourth
// time that it is asked for the gauges of Watch, and reads up to 300,000 rows then: call it only if
// the result is used. The rest is as for Watch.
func (m *Metrics) WatchTypes(backlog func(context.Context) ([]core.TypeBacklog, error)) {
	m.set.WatchTypes(backlog)
}

// WatchLog adds the gauges of readers of PostgreSQL's log, each with the label slot:
// outbox_log_behind_bytes, outbox_log_kept_bytes, outbox_log_slot_active, outbox_log_slot_lost,
// outbox_log_repairing; outbox_log_safe_bytes if max_slot_wal_keep_size bounds the slot; and
// outbox_log_spilled_keys in the process that reads it. Any process may watch, whether it reads the
// slot or stands by. Two relays with slots of one name, on two servers, need a Metrics each, with
// different ConstLabels: in one, the second is left out, and outbox_backlog_errors_total counts. A
// second call replaces all relays. The rest is as for Watch.
func (m *Metrics) WatchLog(backlogs ...func(context.Context) (core.LogBacklog, error)) {
	m.set.WatchLog(backlogs...)
}

// WatchInbox adds the gauges of the tables of an inbox, with backlog of (*inbox.Inbox).Backlog:
// inbox_backlog_messages and inbox_backlog_oldest_age_seconds, for each handler of each consumer in the tables.
// A dead message stays in them until a person redrives or discards it. The rest is as for Watch.
func (m *Metrics) WatchInbox(backlog func(context.Context) ([]inbox.Backlog, error)) {
	m.set.WatchInbox(backlog)
}

// WatchEffects adds the gauges of a table of effects: effect_backlog_messages and
// effect_backlog_oldest_age_seconds, for each channel with effects that are not completed. The rest
// is as for Watch.
func (m *Metrics) WatchEffects(backlog func(context.Context) ([]command.Backlog, error)) {
	m.set.WatchEffects(backlog)
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range m.watched {
		ch <- d
	}
	for _, c := range m.all {
		c.Describe(ch)
	}
}

// Collect implements prometheus.Collector. It asks the database for the gauges if their last answer
// is older than Config.BacklogEvery.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	samples := m.set.Samples(context.Background())
	for _, c := range m.all {
		c.Collect(ch)
	}
	for _, s := range samples {
		ch <- prometheus.MustNewConstMetric(m.watched[s.Desc.Name], prometheus.GaugeValue, s.Value, s.Values...)
	}
}

// factory makes the metrics, and remembers them.
type factory struct {
	labels prometheus.Labels
	made   *[]prometheus.Collector
}

func (f *factory) desc(d metrics.Desc) *prometheus.Desc {
	return prometheus.NewDesc(d.Name, d.Help, d.Labels, f.labels)
}

// Counter implements metrics.Meter.
func (f *factory) Counter(d metrics.Desc) func(values ...string) metrics.Counter {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: d.Name, Help: d.Help, ConstLabels: f.labels}, d.Labels)
	*f.made = append(*f.made, v)
	return func(values ...string) metrics.Counter { return v.WithLabelValues(values...) }
}

// Gauge implements metrics.Meter.
func (f *factory) Gauge(d metrics.Desc) func(values ...string) metrics.Gauge {
	v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: d.Name, Help: d.Help, ConstLabels: f.labels}, d.Labels)
	*f.made = append(*f.made, v)
	return func(values ...string) metrics.Gauge { return v.WithLabelValues(values...) }
}

// Histogram implements metrics.Meter.
func (f *factory) Histogram(d metrics.Desc) func(values ...string) metrics.Histogram {
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: d.Name, Help: d.Help, ConstLabels: f.labels, Buckets: d.Buckets,
	}, d.Labels)
	*f.made = append(*f.made, v)
	return func(values ...string) metrics.Histogram { return v.WithLabelValues(values...) }
}
