package metrics_test

import (
	"context"
	"fmt"
	"strings"
	"time"

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
	observer.Published(core.PublishInfo{
		Topic: "orders", Type: "order.placed", Path: core.PathHot, Result: core.PublishDone,
	})
	// Output:
	// outbox.relay.messages orders hot published 1
	// outbox.relay.type.messages order.placed published 1
	// outbox.fastpath.messages orders sent 1
}

// table is what an outbox tells about its table.
type table struct{}

func (table) Backlog(context.Context) (core.Backlog, error) {
	return core.Backlog{Pending: 7, Dead: 1, BlockedKeys: 1, OldestAge: time.Minute}, nil
}

// log is what the reader of a slot tells.
type log struct{}

func (log) LogBacklog(context.Context) (core.LogBacklog, error) {
	return core.LogBacklog{Slot: "outbox", Known: true, Active: true, Behind: 4096, Kept: 8192}, nil
}

// Gauges of a relay that reads the log of PostgreSQL.
func ExampleSet_WatchLog() {
	set := metrics.New(printer{}, metrics.Config{})
	set.WatchLog(log{}.LogBacklog) // in a service: the *walrelay.Relay
	for _, sample := range set.Samples(context.Background()) {
		fmt.Println(sample.Desc.OTelName(), sample.Values, sample.Value)
	}
	// Output:
	// outbox.log.slot.active [outbox] 1
	// outbox.log.slot.lost [outbox] 0
	// outbox.log.repairing [outbox] 0
	// outbox.log.behind [outbox] 4096
	// outbox.log.kept [outbox] 8192
}

// Gauges that come from the database are read when somebody asks for them.
func ExampleWatched() {
	set := metrics.New(printer{}, metrics.Config{})
	set.Watch(table{}) // in a service: the outbox
	values := map[string]float64{}
	for _, sample := range set.Samples(context.Background()) {
		values[sample.Desc.Name] += sample.Value
	}
	for _, desc := range metrics.Watched()[:3] {
		fmt.Println(desc.Name, values[desc.Name])
	}
	// Output:
	// outbox_backlog_messages 8
	// outbox_backlog_oldest_age_seconds 60
	// outbox_blocked_keys 1
}
