package walrelay_test

import (
	"context"
	"fmt"
	"log"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/pgxoutbox/walrelay"
)

func pool() *pgxpool.Pool {
	p, err := pgxpool.New(context.Background(), "postgres://relay@db.example/shop?pool_max_conns=8")
	if err != nil {
		log.Fatal(err)
	}
	return p
}

func config() walrelay.Config {
	return walrelay.Config{
		Pool: pool(), Slot: "outbox", Create: true,
		Outbox: core.Config{Publisher: core.PublisherFunc(func(_ context.Context, d core.Delivery) error {
			fmt.Println(d.Type)
			return nil
		})},
	}
}

// A process that publishes what the services commit with core.Config.RelayedByLog.
func ExampleRelay_Run() {
	relay, err := walrelay.New(config())
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	stop() // the program ends
	fmt.Println(relay.Run(ctx))
	// Output: <nil>
}

// The statements for a migration. They are those that Setup runs.
func ExampleRelay_Statements() {
	relay, err := walrelay.New(config())
	if err != nil {
		log.Fatal(err)
	}
	for _, text := range relay.Statements()[1:] {
		fmt.Println(text + ";")
	}
	// Output:
	// CREATE PUBLICATION "outbox" FOR TABLE "outbox_event" WHERE (claimed_by = 'log')
	//     WITH (publish = 'insert', publish_via_partition_root = true);
	// SELECT pg_create_logical_replication_slot('outbox', 'pgoutput');
}

// Any process may ask how far the slot is.
func ExampleRelay_Status() {
	relay, err := walrelay.New(config())
	if err != nil {
		log.Fatal(err)
	}
	status, err := relay.Status(context.Background())
	if err != nil {
		return // the database is away
	}
	if status.Lost || status.Bounded && status.SafeWALSize < 1<<30 {
		fmt.Println("look at the relay:", status.Behind, "bytes behind")
	}
}

// Metrics ask a relay for this: metrics.WatchLog(relay.LogBacklog), with promoutbox or oteloutbox.
func ExampleRelay_LogBacklog() {
	relay, err := walrelay.New(config())
	if err != nil {
		log.Fatal(err)
	}
	backlog, err := relay.LogBacklog(context.Background())
	if err != nil {
		return // the database is away
	}
	if !backlog.Active {
		fmt.Println("nobody reads", backlog.Slot, "and the server keeps", backlog.Kept, "bytes of log")
	}
}

// A refused event waits in the table, and is redriven there.
func ExampleRelay_Outbox() {
	relay, err := walrelay.New(config())
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	dead, err := relay.Outbox().ListDead(ctx, core.DeadQuery{})
	if err != nil {
		return // the database is away
	}
	for _, d := range dead {
		_, _ = relay.Outbox().Redrive(ctx, core.AdminRequest{
			IDs: []core.RowID{d.ID}, Actor: "ann", Reason: "the broker takes it now",
		})
	}
}
