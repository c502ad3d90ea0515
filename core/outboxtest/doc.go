// Package outboxtest is for tests of services. It has an outbox table in memory, whose transactions
// behave like a database's. It also has a publisher that records events and fails on demand, a
// repository that fails on demand, and checks of published events.
//
// The test of an application calls NewOutbox, publishes in a transaction of its Transactor, drains,
// and calls RequirePublished:
//
//	ob := outboxtest.NewOutbox(t, core.Config{})
//	err := ob.Transactor.RunInTx(ctx, func(ctx context.Context, tx core.Tx) error {
//		_, err := ob.Publish(ctx, tx, core.Event{Type: "order.placed", AggregateID: "7"})
//		return err
//	})
//	...
//	err = ob.Drain(ctx)
//	...
//	outboxtest.RequirePublished(t, ob.Publisher, outboxtest.Match{Type: "order.placed", AggregateID: "7"})
//
// The package works inside a bubble of testing/synctest: it waits only on channels, and its clock
// is time.Now.
//
// Package suite, below, has the suites that adapters, tables and stores of keys must pass.
package outboxtest
