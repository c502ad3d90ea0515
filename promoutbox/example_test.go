package promoutbox_test

import (
	"context"
	"fmt"
	"log"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/promoutbox"
)

// slot is what a *walrelay.Relay tells about its slot.
type slot struct{}

func (slot) LogBacklog(context.Context) (core.LogBacklog, error) {
	return core.LogBacklog{Slot: "outbox", Known: true, Behind: 4096, Bounded: true, Safe: 1 << 30}, nil
}

// The gauges of a relay that reads the log of PostgreSQL. Nobody reads this slot.
func ExampleMetrics_WatchLog() {
	metrics := promoutbox.New(promoutbox.Config{})
	metrics.WatchLog(slot{}.LogBacklog) // in a service: that of the *walrelay.Relay
	fmt.Println(testutil.CollectAndCompare(metrics, strings.NewReader(`
# HELP outbox_log_slot_active 1 while a process reads the slot, else 0. Use max over processes.
# TYPE outbox_log_slot_active gauge
outbox_log_slot_active{slot="outbox"} 0
`), "outbox_log_slot_active"))
	// Output: <nil>
}

// An outbox with metrics. A service passes the registry to promhttp.HandlerFor.
func Example() {
	registry := prometheus.NewRegistry()
	metrics := promoutbox.New(promoutbox.Config{Topics: []string{"orders"}})
	registry.MustRegister(metrics)

	table := outboxtest.NewRepository()
	outbox, err := core.New(core.Config{
		Repository: table,
		Publisher: core.PublisherFunc(
			func(context.Context, core.Delivery) error { return nil },
		),
		Relay:    relay.Config{},
		Observer: metrics.Outbox(),
	})
	if err != nil {
		log.Fatal(err)
	}
	metrics.Watch(outbox)

	ctx := context.Background()
	tx, err := table.Begin(ctx)
	if err != nil {
		log.Fatal(err)
	}
	event := core.Event{Type: "order.placed", Topic: "orders", Payload: []byte("{}")}
	if _, err := outbox.Publish(ctx, tx, event); err != nil {
		log.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		log.Fatal(err)
	}

	fmt.Println(testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP outbox_backlog_messages Events that are not finished, counted up to a limit. Use max over processes.
# TYPE outbox_backlog_messages gauge
outbox_backlog_messages{state="dead"} 0
outbox_backlog_messages{state="pending"} 1
`), "outbox_backlog_messages"))
	// Output: <nil>
}
