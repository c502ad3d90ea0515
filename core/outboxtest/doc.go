// Package outboxtest holds what tests need around package core: an outbox table in memory with real
// transaction semantics, a publisher that records and fails on demand, the conformance suites for
// implementations of core.Repository and for adapters of ORMs (TestAdapter for their transactions,
// TestCapture for their statements), and helpers for the tests of an application.
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
package outboxtest
