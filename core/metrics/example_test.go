package metrics_test

import (
	"fmt"
	"strings"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/metrics"
)

// printer is a library of metrics that prints what counters are told.
type printer struct{}

func (printer) Counter(d metrics.Desc) func(values ...string) metrics.Counter {
	return func(values ...string) metrics.Counter { return line(d.OTelName() + " " + strings.Join(values, " ")) }
}

func (printer) Gauge(metrics.Desc) func(values ...string) metrics.Gauge {
	return func(...string) metrics.Gauge { return line("") }
}

func (printer) Histogram(metrics.Desc) func(values ...string) metrics.Histogram {
	return func(...string) metrics.Histogram { return line("") }
}

type line string

func (l line) Add(n float64)   { fmt.Println(l, n) }
func (line) Set(float64)       {}
func (line) Observe(v float64) {}

// Metrics for another library: implement Meter.
func ExampleNew() {
	set := metrics.New(printer{}, metrics.Config{Topics: []string{"orders"}})
	observer := set.Outbox() // for core.Config
	observer.Published(core.PublishInfo{Topic: "orders", Path: core.PathHot, Result: core.PublishDone})
	// Output:
	// outbox.relay.messages orders hot published 1
	// outbox.fastpath.messages orders sent 1
}
