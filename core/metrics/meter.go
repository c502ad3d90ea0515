package metrics

import (
	"strings"
	"time"
)

// Desc describes one metric.
type Desc struct {
	Name    string    // as Prometheus has it, with the unit and _total
	Help    string    // one or two sentences
	Labels  []string  // the names of its labels, in the order of the values of a series
	Buckets []float64 // upper bounds, of a histogram
}

// OTelName is the name of the metric for OpenTelemetry, from which exporters make Name: dots for
// underscores, without the unit and _total.
func (d Desc) OTelName() string {
	name := d.Name
	for _, end := range []string{"_total", "_seconds", "_bytes"} {
		name = strings.TrimSuffix(name, end)
	}
	return strings.ReplaceAll(name, "_", ".")
}

// Unit is s for seconds and By for bytes, else empty.
func (d Desc) Unit() string {
	switch {
	case strings.HasSuffix(d.Name, "_seconds"):
		return "s"
	case strings.HasSuffix(d.Name, "_bytes"):
		return "By"
	}
	return ""
}

// Meter makes metrics in a library of metrics. New calls each method once for each metric. The
// functions that it returns make the series of values of labels; many goroutines call them.
type Meter interface {
	Counter(d Desc) func(values ...string) Counter
	Gauge(d Desc) func(values ...string) Gauge
	Histogram(d Desc) func(values ...string) Histogram
}

// Counter is one series of a counter. It begins at zero when it is made.
type Counter interface{ Add(n float64) }

// Gauge is one series of a gauge. It begins at zero when it is made.
type Gauge interface{ Set(v float64) }

// Histogram is one series of a histogram.
type Histogram interface{ Observe(v float64) }

// Config configures a Set. Its zero value works.
type Config struct {
	// Topics have their series from the start, at zero: an alert on a rate works before the first
	// event. Series of other topics begin with their first event.
	Topics []string
	// Types are event types that have their series from the start, as Topics have.
	Types []string
	// MaxLabels is how many different values each label may have: topics, event types, handlers,
	// routes. Further ones count as "_other". Default: 100. Topics and Types have theirs in any
	// case.
	MaxLabels int
	// BacklogEvery is how old the answers of Set.Samples may be. Default: 15 s, and longer while a
	// query takes longer than 150 ms: a hundred times as long as it takes.
	BacklogEvery time.Duration
	// BacklogTimeout is how long Set.Samples waits for the database, for each query, and half of
	// how long it waits for all of them. Default: 2 s.
	BacklogTimeout time.Duration
}

// Set has all metrics of a process. Make it with New. It is safe for use by several goroutines.
type Set struct {
	outbox  *outboxMetrics
	inbox   *inboxMetrics
	keys    *keyMetrics
	http    *series[*callMetrics]
	effects *series[*callMetrics]
	watch   *watch
}

// New makes the metrics with m.
func New(m Meter, cfg Config) *Set {
	if cfg.MaxLabels <= 0 {
		cfg.MaxLabels = 100
	}
	sparing := cfg.BacklogEvery <= 0
	if sparing {
		cfg.BacklogEvery = 15 * time.Second
	}
	if cfg.BacklogTimeout <= 0 {
		cfg.BacklogTimeout = 2 * time.Second
	}
	return &Set{
		outbox: newOutboxMetrics(m, cfg), inbox: newInboxMetrics(m, cfg), keys: newKeyMetrics(m, cfg),
		http: newHTTPMetrics(m, cfg), effects: newEffectMetrics(m, cfg), watch: newWatch(m, cfg, sparing),
	}
}

type (
	counterVec   = func(values ...string) Counter
	histogramVec = func(values ...string) Histogram
)

func counter(m Meter, name, help string, labels ...string) counterVec {
	return m.Counter(Desc{Name: name, Help: help, Labels: labels})
}

// cleanup counts what the cleanup of a table deletes.
type cleanup struct{ deleted, failed Counter }

func newCleanup(m Meter, of, help string) *cleanup {
	return &cleanup{
		deleted: counter(m, of+"_cleanup_deleted_total", help)(),
		failed:  counter(m, of+"_cleanup_errors_total", "Cleanups that failed.")(),
	}
}

func (c *cleanup) cleaned(deleted int, err error) {
	c.deleted.Add(float64(deleted))
	if err != nil {
		c.failed.Add(1)
	}
}

func gauge(m Meter, name, help string, labels ...string) func(values ...string) Gauge {
	return m.Gauge(Desc{Name: name, Help: help, Labels: labels})
}

func histogram(m Meter, name, help string, buckets []float64, labels ...string) histogramVec {
	return m.Histogram(Desc{Name: name, Help: help, Labels: labels, Buckets: buckets})
}

// with begins the series of values of the only label.
func with[M any](v func(values ...string) M, values ...string) func(values ...string) M {
	made := make(map[string]M, len(values))
	for _, value := range values {
		made[value] = v(value)
	}
	return func(values ...string) M {
		if series, ok := made[values[0]]; ok {
			return series
		}
		return v(values...)
	}
}

// Bounds of the buckets, in seconds.
var (
	// From a call without a network to the default timeout of a publish.
	callBuckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}
	// From the fast path to an outage of half an hour.
	lagBuckets = []float64{.001, .005, .01, .05, .1, .5, 1, 2.5, 5, 10, 30, 60, 300, 900, 1800}

	rowBuckets = []float64{0, 1, 5, 10, 50, 100, 250, 500, 1000}
)
