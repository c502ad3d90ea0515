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
	"github.com/ormoutbox/ormoutbox/promoutbox"
)

// An outbox with metrics. A service passes the registry to promhttp.HandlerFor.
func Example() {
	registry := prometheus.NewRegistry()
	metrics := promoutbox.New(promoutbox.Config{Topics: []string{"orders"}})
	registry.MustRegister(metrics)

	table := outboxtest.NewRepository()
	outbox, err := core.New(core.Config{
		Repository: table,
		Publisher:  core.PublisherFunc(func(context.Context, core.Delivery) error { return nil }),
		Observer:   metrics.Outbox(),
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
