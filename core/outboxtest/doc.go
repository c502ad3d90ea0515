// Package outboxtest is for tests of services. It has an outbox table in memory whose transactions
// behave like those of a database, a publisher that records and fails on demand, a repository that
// fails on demand, and checks of published events.
//
// An application's test takes NewOutbox, publishes in a transaction of its Transactor, drains, and
// asks RequirePublished:
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
// Everything in it works inside a bubble of testing/synctest: it waits on channels only, and its
// clock is time.Now.
//
// Package suite, below, has the suites that adapters, tables and stores of keys must pass.
package outboxtest
