// Package core is the transactional outbox without an ORM: events are rows of the transaction that
// changes the state they speak of, and leave through a Publisher once it has committed.
//
//	repo, err := sqloutbox.New(pool, sqloutbox.Config{})
//	err = repo.Migrate(ctx) // or apply what sqloutbox.Migrations returns
//	ob, err := core.New(core.Config{Repository: repo, Publisher: publisher})
//	go ob.Run(ctx)
//
//	tx, err := sqltx.Begin(ctx, pool, nil, repo.Dialect())
//	_, err = tx.ExecContext(ctx, "UPDATE orders SET status = 'placed' WHERE id = 7")
//	_, err = ob.Publish(ctx, tx, core.Event{
//		Type: "order.placed", AggregateType: "order", AggregateID: "7", Data: order,
//	})
//	err = tx.Commit() // after an error above: tx.Rollback()
//
// What it promises, while the database keeps what it committed: a committed event is never lost and
// a rolled-back one never published; it is delivered at least once, and exactly once when nothing
// fails; the first copies of the events of one key on one topic leave in the order of their
// commits. What it does not: order between keys or between topics, exactly-once delivery (consumers
// deduplicate by Event.ID), anything beyond the durability of the database and the acknowledgement
// of the broker.
//
// # How an event travels
//
// Publish validates and encodes, reserves a slot in memory, and inserts the row already leased to
// this process. The commit hands the event to the dispatcher without a look at the database: the
// fast path. The poller claims what the fast path does not have, after a crash, an overflow, a
// retry, a delay, or from a process that does not relay. Either way the row is published by one
// holder at a time and then marked, in batches.
//
// A row is NEW, RETRY, DONE, DEAD or DISCARDED. There is no state for "claimed": that is a lease
// that ends by itself. What a destination acknowledged is a fact that anybody may record;
// everything else a holder reports counts only while it holds the claim.
//
// # Who uses what
//
// Applications use New, Config, Event, the table of package sqloutbox, and transactions: of package
// sqltx for database/sql, of the modules gormoutbox, entoutbox and bunoutbox for the ORMs.
// Publishers come from module watermillbridge or are a PublisherFunc; Router combines them.
// Repository, Tx and Transactor are for authors of adapters; package outboxtest has the suites they
// pass and fakes for everybody's tests.
package core
