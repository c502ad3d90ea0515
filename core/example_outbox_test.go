package core_test

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/relay"
)

// The examples use a table in memory. With a database, sqloutbox.New gives the Repository, and an
// adapter gives the transaction.

func Example() {
	table := outboxtest.NewRepository()
	published := make(chan string)
	ob, err := core.New(core.Config{
		Repository: table,
		Publisher: core.PublisherFunc(func(_ context.Context, d core.Delivery) error {
			published <- fmt.Sprintf("%s %s %s", d.Type, d.Key, d.Payload)
			return nil
		}), Relay: relay.Config{},
	})
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = ob.Run(ctx) }) // the relay

	err = table.Transactor().RunInTx(ctx, func(ctx context.Context, tx core.Tx) error {
		// ... change the order in tx ...
		_, err := ob.Publish(ctx, tx, core.Event{
			Type: "order.placed", AggregateType: "order", AggregateID: "7", Data: map[string]any{"total": 42},
		})
		return err
	})
	if err != nil {
		panic(err)
	}
	fmt.Println(<-published)
	cancel()
	wg.Wait()
	// Output: order.placed order/7 {"total":42}
}

func ExampleOutbox_Publish() {
	table := outboxtest.NewRepository()
	ob, _ := core.New(core.Config{Repository: table}) // no Publisher: another process relays

	err := table.Transactor().RunInTx(context.Background(), func(ctx context.Context, tx core.Tx) error {
		if _, err := ob.Publish(ctx, tx, core.Event{Type: "order.placed", AggregateID: "7"}); err != nil {
			return err
		}
		return errors.New("the card was refused")
	})
	fmt.Println(err, len(table.Rows()))

	_, err = ob.Publish(context.Background(), nil, core.Event{Type: "order.placed"})
	fmt.Println(errors.Is(err, core.ErrNoTransaction))
	// Output:
	// the card was refused 0
	// true
}

func ExampleOutbox_Drain() {
	table := outboxtest.NewRepository()
	ob, _ := core.New(core.Config{
		Repository: table,
		Publisher: core.PublisherFunc(func(_ context.Context, d core.Delivery) error {
			fmt.Println(d.Type, d.KeySeq > 0)
			return nil
		}), Relay: relay.Config{},
	})
	ctx := context.Background()
	_ = table.Transactor().RunInTx(ctx, func(ctx context.Context, tx core.Tx) error {
		_, err := ob.Publish(ctx, tx, core.Event{Type: "ordered", Key: "k"})
		return err
	})
	if err := ob.Drain(ctx); err != nil { // as a scheduled job does, instead of Run
		fmt.Println(err)
	}
	// Output: ordered true
}

func ExampleOutbox_Redrive() {
	table := outboxtest.NewRepository()
	broken := true
	ob, _ := core.New(core.Config{
		Repository: table,
		Publisher: core.PublisherFunc(func(_ context.Context, d core.Delivery) error {
			if broken {
				return core.Permanent(errors.New("schema unknown"))
			}
			fmt.Println("published", d.Type)
			return nil
		}), Relay: relay.Config{},
	})
	ctx := context.Background()
	_ = table.Transactor().RunInTx(ctx, func(ctx context.Context, tx core.Tx) error {
		_, err := ob.Publish(ctx, tx, core.Event{Type: "order.placed"})
		return err
	})
	_ = ob.Drain(ctx)

	dead, _ := ob.ListDead(ctx, core.DeadQuery{})
	fmt.Println(dead[0].ErrorCode, dead[0].Error)
	broken = false
	n, err := ob.Redrive(ctx, core.AdminRequest{
		IDs: []core.RowID{dead[0].ID}, Actor: "ada",
		Reason: "schema registered",
	})
	fmt.Println(n, err)
	_ = ob.Drain(ctx)
	// Output:
	// permanent schema unknown
	// 1 <nil>
	// published order.placed
}

func ExampleRouter() {
	r := core.NewRouter()
	r.HandleFunc("orders",
		func(_ context.Context, d core.Delivery) error { fmt.Println("to the broker:", d.Type); return nil })
	r.HandleFunc("search",
		func(_ context.Context, d core.Delivery) error { fmt.Println("to the index:", d.Type); return nil })

	table := outboxtest.NewRepository()
	ob, _ := core.New(core.Config{
		Repository: table, Publisher: r, Relay: relay.Config{Workers: 1},
		Routes: map[string][]string{"order.placed": {"orders", "search"}}, // one row each
	})
	ctx := context.Background()
	_ = table.Transactor().RunInTx(ctx, func(ctx context.Context, tx core.Tx) error {
		_, err := ob.Publish(ctx, tx, core.Event{Type: "order.placed"})
		return err
	})
	_ = ob.Drain(ctx)
	// Unordered output:
	// to the broker: order.placed
	// to the index: order.placed
}

func ExampleOutbox_Backlog() {
	table := outboxtest.NewRepository()
	ob, _ := core.New(core.Config{Repository: table})
	ctx := context.Background()
	_ = table.Transactor().RunInTx(ctx, func(ctx context.Context, tx core.Tx) error {
		_, err := ob.Publish(ctx, tx, core.Event{Type: "a"}, core.Event{Type: "b"})
		return err
	})
	b, err := ob.Backlog(ctx)
	fmt.Println(b.Pending, b.Dead, err)
	// Output: 2 0 <nil>
}

// CountAudit tells what people did since the last look, by action. A redrive has a row for each
// event.
func ExampleOutbox_CountAudit() {
	ctx := context.Background()
	table := outboxtest.NewRepository()
	ob, _ := core.New(core.Config{Repository: table})
	pause := core.PauseRequest{Topic: "orders", Actor: "ada", Reason: "broker upgrade"}
	if err := ob.Pause(ctx, pause); err != nil {
		panic(err)
	}
	newest, err := ob.ListAudit(ctx, core.AuditQuery{Limit: 1})
	if err != nil {
		panic(err)
	}
	rows, err := ob.CountAudit(ctx, 0, newest[0].No)
	fmt.Println(rows, err)
	// Output: map[pause:1] <nil>
}

// After a failover that lost commits, while the services that publish are stopped.
func ExampleOutbox_ResetKeys() {
	ctx := context.Background()
	table := outboxtest.NewRepository()
	ob, _ := core.New(core.Config{Repository: table})
	err := table.Transactor().RunInTx(ctx, func(ctx context.Context, tx core.Tx) error {
		_, err := ob.Publish(ctx, tx, core.Event{Type: "order.placed", Topic: "orders", Key: "7"})
		return err
	})
	if err != nil {
		panic(err)
	}
	n, err := ob.ResetKeys(ctx, "ada", "failover of db1, INC-42")
	fmt.Println(n, err)
	did, err := ob.ListAudit(ctx, core.AuditQuery{Limit: 1})
	if err != nil {
		panic(err)
	}
	fmt.Println(did[0].Action, did[0].Actor, did[0].Reason)
	// Output:
	// 1 <nil>
	// reset-keys ada failover of db1, INC-42
}

// A pause is stored: every relay of the table follows it, and a restart does not end it.
func ExampleOutbox_Pause() {
	ctx, table := context.Background(), outboxtest.NewRepository()
	ob, err := core.New(core.Config{Repository: table})
	if err != nil {
		panic(err)
	}
	err = ob.Pause(ctx, core.PauseRequest{Topic: "orders", Actor: "ann", Reason: "broker upgrade"})
	if err != nil {
		panic(err)
	}
	paused, err := ob.Pauses(ctx)
	if err != nil {
		panic(err)
	}
	for _, p := range paused {
		fmt.Println(p.Topic, "is paused by", p.Actor, "because of the", p.Reason)
	}
	resumed, err := ob.Resume(ctx, core.ResumeRequest{Topic: "orders", Actor: "ann", Reason: "upgraded"})
	fmt.Println(resumed, err)
	// Output:
	// orders is paused by ann because of the broker upgrade
	// true <nil>
}
