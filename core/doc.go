// Package core is the transactional outbox without an ORM. Events are rows that are written in the
// transaction that changes the business state. After the commit the relay sends them through a
// Publisher.
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
// The outbox promises, as long as the database keeps its commits:
//
//   - A committed event is never lost. An event of a rolled-back transaction is never published.
//   - An event is delivered at least once, and exactly once when nothing fails.
//   - The first copies of the events of one key and topic are published in the order of their
//     commits.
//
// The outbox does not promise order between keys or between topics. It does not promise
// exactly-once delivery: consumers deduplicate by Event.ID. Its promises end with the durability of
// the database and the acknowledgement of the broker.
//
// # How an event travels
//
// Publish validates and encodes the event, reserves a slot in memory, and inserts the row already
// leased to this process. The commit hands the event to the dispatcher without a query: this is the
// fast path. The poller claims the rows that the fast path does not have: after a crash, when the
// fast path was full, for a retry or a delay, or from a process that does not relay. In both cases
// one process at a time publishes the row. The marks are then written in batches.
//
// A row is NEW, RETRY, DONE, DEAD or DISCARDED. A claimed row has no status of its own: it has a
// lease that ends by itself. Any process may record that a destination acknowledged an event. Every
// other report of a process counts only while the process holds the claim.
//
// # Where to begin
//
// Applications use New, Config, Event, and the table of package sqloutbox. Their transactions come
// from package sqltx for database/sql, and from the modules gormoutbox, entoutbox and bunoutbox for
// the ORMs. Publishers come from module watermillbridge or are a PublisherFunc. Router combines
// several publishers. Repository, Tx and Transactor are for authors of adapters. Package outboxtest
// has fakes for every test, and the suites that adapters pass.
package core
