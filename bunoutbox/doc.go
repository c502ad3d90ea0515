// Package bunoutbox makes events part of Bun's transactions. The changes of a transaction and its
// events commit together, and after the commit the events are sent through a publisher.
//
//	db, ob, err := bunoutbox.Open(ctx, "pgx", dsn, pgdialect.New(),
//		bunoutbox.Config{Publisher: publisher, AutoCreate: true})
//	go ob.Run(ctx)
//
// For an existing *bun.DB use New, and then work with the *bun.DB that Outbox.DB returns. Its pool
// should be opened with sqltx.Connector.
//
// There are three ways to publish an event. First, a model records it, and the event is written
// when the model is inserted, updated or deleted:
//
//	type Order struct {
//		ID     string `bun:",pk"`
//		Status string
//		core.Recorder `bun:"-"`
//	}
//	order.Record(OrderPlaced{OrderID: order.ID}) // OrderPlaced has a method EventType() string
//
// Work with the *bun.DB that Outbox.DB returns. With another one the row is saved without the event
// and without an error, which only a test can find (outboxtest.RequireNothingRecorded).
//
// Second, a function derives events from the stored rows (see On, OnContext and OnAll). Third, the
// code calls Outbox.Publish.
//
// # Captured statements
//
// Recorded events and On functions see the NewInsert, NewUpdate and NewDelete of a *bun.DB that has
// the hook, when they have a Model: batches, conditions, bulk updates, soft deletes too. An On
// function is called once for each row that the statement inserted, updated or deleted, with the
// row as the database stored it (deleted: as it was). Recorded events are published with their row;
// if the statement did not change the row, they stay recorded, and RowsAffected does not count the
// row. The database itself names the rows, so nothing depends on the fields of the model in memory.
// An event without an AggregateID gets the primary key of its row. Several primary keys are joined
// by commas, and bytes are written in hex. AggregateType, which is the event's topic by default, is
// filled in only if the model has a method AggregateType() string. In detail:
//
//   - ON CONFLICT DO UPDATE, ON DUPLICATE KEY UPDATE and REPLACE make OpUpsert, because not every
//     database distinguishes a new row from an existing one. With DO NOTHING and IGNORE, the rows
//     that were inserted are OpCreate.
//   - A row counts as changed if the statement found it, even if it had the new values already.
//   - If an update changes the primary key, the event has the new key only.
//   - The events of the rows are written right after the statement, before Bun reads the rows of
//     RETURNING and before the hooks of the model. A failure there leaves the row and its events
//     together.
//   - If several rows changed and it is not certain which of them is the row of a model with
//     recorded events, the error is core.ErrNoAggregateID, and the transaction does not commit.
//     Examples are a condition with a model without a key, and an Ignore batch with generated keys
//     that was inserted in part. Events with their own AggregateID are published all the same.
//   - An update or delete of more than 100,000 rows is refused with core.ErrTooManyRows, and a
//     MERGE with core.ErrNoAggregateID.
//   - Raw SQL, Table(...) without a model, maps, statements within a WITH, cascades and changes by
//     triggers are not seen. Use Publish there.
//
// A statement that causes events outside a transaction gets a transaction of its own, which ends
// with the statement. If its COMMIT fails, the statement returns that error. Such a statement needs
// a pool of sqltx.Connector. On another pool, and in a transaction begun by the text BEGIN, it is
// refused with core.ErrUntracked before it is executed. If the events cannot be written (an event
// is not valid, an On function fails), the statement returns the error, and its transaction does
// not commit, even if the program ignores the error.
//
// The hook gives the query a connection of its own while it is executed. Another hook that sets the
// connection of the query (q.Conn) would hide it: COMMIT then fails.
//
// Other query hooks see one or two more queries for each captured statement: SELECT 1 with a
// comment, which finds the transaction of the statement. A tracked connection answers that query
// itself.
//
// # Tracked transactions
//
// On a pool opened with sqltx.Connector every transaction is tracked, savepoints and prepared
// statements included, with any context. On another pool, the transactions of Outbox.RunInTx and
// Transactor are tracked in the same way. Publish also works in Bun's own transactions of such a
// pool: its events are as safe, but wait for the poller. Config.RejectUntracked refuses them.
//
// Nest with Outbox.RunInTx. Bun's own nested RunInTx rolls its savepoint back with the given
// context. If that context has ended, ROLLBACK TO is not sent, and the outer transaction commits
// the changes of the inner one, with its events.
package bunoutbox
