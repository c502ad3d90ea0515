package ops_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/relay"
)

// poisoned returns an outbox with two events of one key, of which the first is dead. The table is
// in memory. With a database, sqloutbox.New gives the Repository.
func poisoned() (*ops.API, *core.Outbox, []string) {
	table, broken := outboxtest.NewRepository(), true
	ob, err := core.New(core.Config{
		Repository: table, Logger: slog.New(slog.DiscardHandler),
		Publisher: core.PublisherFunc(func(_ context.Context, d core.Delivery) error {
			if d.Type == "order.placed" && broken {
				broken = false
				return core.Permanent(errors.New("schema 3 has no field \"total\""))
			}
			return nil
		}), Relay: relay.Config{},
	})
	if err != nil {
		panic(err)
	}
	var ids []string
	err = table.Transactor().RunInTx(context.Background(), func(ctx context.Context, tx core.Tx) (err error) {
		ids, err = ob.Publish(ctx, tx,
			core.Event{Type: "order.placed", Topic: "orders", Key: "7"},
			core.Event{Type: "order.paid", Topic: "orders", Key: "7"})
		return err
	})
	if err = errors.Join(err, ob.Drain(context.Background())); err != nil {
		panic(err)
	}
	api, err := ops.New(ob, table)
	if err != nil {
		panic(err)
	}
	return api, ob, ids
}

// From the failure to the repair: what failed, why an event waits, and the redrive of all events
// that failed so.
func Example() {
	api, ob, ids := poisoned()
	ctx := context.Background()

	failures, err := api.Groups(ctx, ops.Filter{})
	if err != nil {
		panic(err)
	}
	for _, g := range failures.Groups {
		fmt.Printf("%d dead, %d keys blocked: %s: %s\n", g.Dead, g.BlockedKeys, g.Topic, g.Pattern)
	}
	why, _ := api.Explain(ctx, ids[1])
	fmt.Println(why[0].Reason)

	plan, err := api.PlanRedrive(ctx, ops.Filter{Fingerprint: failures.Groups[0].Fingerprint}, 0)
	if err != nil {
		panic(err)
	}
	fmt.Println(len(plan.IDs), "event,", plan.Keys, "key,", plan.Topics)
	done, err := api.Apply(ctx, plan, "ada", "schema registered")
	fmt.Println(done.Changed, err, ob.Drain(ctx))
	why, _ = api.Explain(ctx, ids[1])
	fmt.Println(why[0].Reason)
	// Output:
	// 1 dead, 1 keys blocked: orders: schema <n> has no field <text>
	// blocked
	// 1 event, 1 key, map[orders:1]
	// 1 <nil> <nil>
	// done
}

func ExampleNew() {
	// A program that does not relay needs no Publisher.
	table := outboxtest.NewRepository()
	ob, err := core.New(core.Config{Repository: table})
	if err != nil {
		panic(err)
	}
	api, err := ops.New(ob, table)
	fmt.Println(api != nil, err)
	// Output: true <nil>
}

func ExampleParseStatus() {
	status, err := ops.ParseStatus("retry")
	fmt.Println(status == ops.StatusRetry, status.Open(), err)
	// Output: true true <nil>
}

func ExampleAPI_List() {
	api, _, _ := poisoned()
	q := ops.ListQuery{Filter: ops.Filter{Topic: "orders"}, Newest: true, Limit: 1}
	for {
		page, err := api.List(context.Background(), q)
		if err != nil {
			panic(err)
		}
		for _, e := range page.Events {
			fmt.Println(e.Type, e.Status)
		}
		if q.After = page.Next; q.After == "" {
			return
		}
	}
	// Output:
	// order.paid new
	// order.placed dead
}

func ExampleAPI_Outage() {
	var once sync.Once
	tried := make(chan struct{}) // closed when the relay of this process has stopped the destination
	table := outboxtest.NewRepository()
	ob, err := core.New(core.Config{
		Repository: table, Logger: slog.New(slog.DiscardHandler),
		Publisher: core.PublisherFunc(func(context.Context, core.Delivery) error {
			return core.Unavailable(errors.New("no route to host"))
		}), Relay: relay.Config{},
		Observer: &core.Observer{BreakerChanged: func(string, bool, error) { once.Do(func() { close(tried) }) }},
	})
	if err != nil {
		panic(err)
	}
	err = table.Transactor().RunInTx(context.Background(), func(ctx context.Context, tx core.Tx) error {
		_, err := ob.Publish(ctx, tx, core.Event{Type: "order.placed", Topic: "orders"})
		return err
	})
	if err != nil {
		panic(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go func() { _ = ob.Run(ctx) }()
	<-tried

	api, err := ops.New(ob, table)
	if err != nil {
		panic(err)
	}
	for _, topic := range []string{"orders", "mails"} {
		stopped, err := api.Outage(context.Background(), topic)
		if err != nil {
			panic(err)
		}
		if stopped != nil {
			fmt.Println(topic, "is stopped:", stopped.Err)
		}
	}
	// Output: orders is stopped: no route to host
}

func ExampleAPI_Count() {
	api, _, _ := poisoned()
	n, err := api.Count(context.Background(), ops.Filter{Statuses: []ops.Status{ops.StatusDead}})
	fmt.Println(n, err)
	// Output: 1 <nil>
}

func ExampleAPI_Show() {
	api, _, ids := poisoned()
	found, err := api.Show(context.Background(), ids[0])
	if err != nil {
		panic(err)
	}
	d := found[0]
	fmt.Println(d.Type, d.Status, d.Attempts, d.ErrorCode, len(d.Behind))
	// Output: order.placed dead 1 permanent 1
}

func ExampleAPI_Explain() {
	api, _, ids := poisoned()
	why, err := api.Explain(context.Background(), ids[0])
	if err != nil {
		panic(err)
	}
	fmt.Println(why[0].Reason)
	fmt.Println(strings.ReplaceAll(why[0].Text, ". ", ".\n"))
	// Output:
	// dead
	// It was given up after 1 refusal: permanent, schema 3 has no field "total".
	// It blocks its key 7: 1 event waits behind it, and so will every later one.
}

func ExampleAPI_Groups() {
	api, _, _ := poisoned()
	failures, err := api.Groups(context.Background(), ops.Filter{Topic: "orders"})
	if err != nil {
		panic(err)
	}
	fmt.Println(len(failures.Groups), failures.Groups[0].ErrorCode, failures.Groups[0].Pattern)
	// Output: 1 permanent schema <n> has no field <text>
}

func ExampleAPI_PlanRedrive() {
	api, _, _ := poisoned()
	plan, err := api.PlanRedrive(context.Background(), ops.Filter{Topic: "orders"}, 1000)
	fmt.Println(plan.Action, len(plan.IDs), plan.More, err)
	// Output: redrive 1 false <nil>
}

func ExampleAPI_PlanDiscard() {
	api, _, ids := poisoned()
	plan, err := api.PlanDiscard(context.Background(), ops.Filter{EventID: ids[0]}, 0)
	fmt.Println(plan.Action, len(plan.IDs), err)
	// Output: discard 1 <nil>
}

func ExampleAPI_PlanRows() {
	api, _, _ := poisoned()
	ctx := context.Background()
	dead, err := api.List(ctx, ops.ListQuery{Filter: ops.Filter{Statuses: []ops.Status{ops.StatusDead}}})
	if err != nil {
		panic(err)
	}
	plan, err := api.PlanRows(ctx, ops.ActionRedrive, dead.Events[0].ID)
	fmt.Println(plan.Action, len(plan.IDs), err)
	// Output: redrive 1 <nil>
}

// A consumer declares how long it recognises copies. Replays follow it.
func ExampleAPI_DeclareWindow() {
	api, _, _ := poisoned()
	ctx := context.Background()
	err := api.DeclareWindow(ctx, ops.WindowRequest{
		Topic: "orders", Consumer: "search", Keep: 7 * 24 * time.Hour, Actor: "search", Reason: "its inbox",
	})
	if err != nil {
		panic(err)
	}
	windows, err := api.Windows(ctx)
	fmt.Println(windows[0], err)
	plan, err := api.PlanReplay(ctx, ops.Filter{Topic: "orders"}, ops.ReplayOptions{})
	fmt.Println(len(plan.IDs), err) // nothing is done yet
	there, err := api.WithdrawWindow(ctx, ops.WindowRequest{
		Topic: "orders", Consumer: "search", Actor: "ada", Reason: "it reads the archive now",
	})
	fmt.Println(there, err)
	// Output:
	// consumer search remembers events of orders for 168h0m0s <nil>
	// 0 <nil>
	// true <nil>
}

// Done events are published again if the consumers remember them for long enough.
func ExampleAPI_PlanReplay() {
	api, ob, ids := poisoned()
	ctx := context.Background()
	dead, err := api.PlanRedrive(ctx, ops.Filter{EventID: ids[0]}, 0)
	if err != nil {
		panic(err)
	}
	if _, err = api.Apply(ctx, dead, "ada", "schema registered"); err != nil {
		panic(err)
	}
	if err = ob.Drain(ctx); err != nil {
		panic(err)
	}
	plan, err := api.PlanReplay(ctx, ops.Filter{Topic: "orders"}, ops.ReplayOptions{DedupWindow: 7 * 24 * time.Hour})
	fmt.Println(plan.Action, len(plan.IDs), err)
	_, err = api.PlanReplay(ctx, ops.Filter{Topic: "orders"}, ops.ReplayOptions{DedupWindow: time.Nanosecond})
	fmt.Println(errors.Is(err, ops.ErrDedupWindow))
	// Output:
	// replay 2 <nil>
	// true
}

// A plan is applied once a person has approved it. Without an actor and a reason nothing changes.
func ExampleAPI_Apply() {
	api, _, ids := poisoned()
	plan, err := api.PlanDiscard(context.Background(), ops.Filter{EventID: ids[0]}, 0)
	if err != nil {
		panic(err)
	}
	_, err = api.Apply(context.Background(), plan, "ada", "")
	fmt.Println(err)
	done, err := api.Apply(context.Background(), plan, "ada", "a test order")
	fmt.Println(done.Changed, err)
	// Output:
	// outbox: invalid request: Reason needs 1 to 1024 bytes
	// 1 <nil>
}

// Nothing was repaired: one event is published again, and the plan stops.
func ExampleAPI_RunPlan() {
	ctx := context.Background()
	table := outboxtest.NewRepository()
	ob, err := core.New(core.Config{
		Repository: table,
		Logger:     slog.New(slog.DiscardHandler),
		Relay:      relay.Config{PollInterval: 10 * time.Millisecond},
		Publisher: core.PublisherFunc(func(context.Context, core.Delivery) error {
			return core.Permanent(errors.New("schema 3 has no field \"total\""))
		}),
	})
	if err != nil {
		panic(err)
	}
	err = table.Transactor().RunInTx(ctx, func(ctx context.Context, tx core.Tx) error {
		for range 100 {
			if _, err := ob.Publish(ctx, tx, core.Event{Type: "order.placed", Topic: "orders"}); err != nil {
				return err
			}
		}
		return nil
	})
	if err = errors.Join(err, ob.Drain(ctx)); err != nil {
		panic(err)
	}
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- ob.Run(running) }()

	api, err := ops.New(ob, table)
	if err != nil {
		panic(err)
	}
	plan, err := api.PlanRedrive(ctx, ops.Filter{Topic: "orders"}, 0)
	if err != nil {
		panic(err)
	}
	stored, err := api.StorePlan(ctx, plan, "ada", "schema registered")
	if err != nil {
		panic(err)
	}
	stored, err = api.RunPlan(ctx, stored.ID, ops.RunOptions{Actor: "ada"})
	fmt.Println(stored.Position, "of", stored.Events, stored.State, errors.Is(err, ops.ErrPlanStopped))
	fmt.Println(stored.Note)
	stop()
	<-ended
	// Output:
	// 1 of 100 stopped true
	// 1 of 1 events failed again
}

// A plan that is cancelled never runs again.
func ExampleAPI_CancelPlan() {
	api, _, _ := poisoned()
	ctx := context.Background()
	plan, err := api.PlanRedrive(ctx, ops.Filter{}, 0)
	if err != nil {
		panic(err)
	}
	stored, err := api.StorePlan(ctx, plan, "ada", "schema registered")
	if err != nil {
		panic(err)
	}
	stored, err = api.CancelPlan(ctx, stored.ID, "eve", "wrong topic")
	fmt.Println(stored.State, stored.Note, err)
	_, err = api.RunPlan(ctx, stored.ID, ops.RunOptions{Actor: "ada"})
	fmt.Println(errors.Is(err, ops.ErrPlanEnded))
	// Output:
	// cancelled by eve: wrong topic <nil>
	// true
}

// A known failure gets a note, and is muted until its repair.
func ExampleAPI_MuteGroup() {
	api, _, _ := poisoned()
	ctx := context.Background()
	failures, err := api.Groups(ctx, ops.Filter{})
	if err != nil {
		panic(err)
	}
	req := ops.GroupRequest{Fingerprint: failures.Groups[0].Fingerprint, Actor: "ada", Reason: "INC-42"}
	if err := api.NoteGroup(ctx, "release 7 repairs it", req); err != nil {
		panic(err)
	}
	if err := api.MuteGroup(ctx, time.Now().Add(48*time.Hour), req); err != nil {
		panic(err)
	}
	failures, err = api.Groups(ctx, ops.Filter{})
	fmt.Println(failures.Groups[0].Muted, failures.Groups[0].Stored.Note, err)
	// Output: true release 7 repairs it <nil>
}
