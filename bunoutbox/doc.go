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
// Second, a function derives events from the saved model (see On and OnContext). Third, the code
// calls Outbox.Publish.
//
// # Captured statements
//
// Recorded events and On functions see the NewInsert, NewUpdate and NewDelete of a *bun.DB that has
// the hook, when they have a Model: batches element by element, bulk updates, soft deletes too. An
// event without an AggregateID gets the primary key of its element. Several primary keys are joined
// by commas, and bytes are written in hex. AggregateType is filled in only if the model has a
// method AggregateType() string.
//
//   - An insert with ON CONFLICT, ON DUPLICATE KEY, IGNORE or REPLACE is OpUpsert, never OpCreate,
//     because not every database tells a new row from an existing one.
//   - A statement that changed no row causes no event; recorded events stay recorded. MySQL and
//     MariaDB do not count an update that sets the same values, unless clientFoundRows=true is in
//     the DSN.
//   - An event is written if, and only if, the database said that its row was changed: as many rows
//     were affected as the statement has models, or their keys came back in RETURNING. An update or
//     delete must name its rows by the keys of its models: with WherePK, Bulk, or Where("id = ?",
//     order.ID), with any further conditions. Or RETURNING fills an empty slice:
//     Model(&changed).Where(...).Returning("*"). Any other update or delete, such as
//     Model((*Order)(nil)).Where(...), is refused with core.ErrNoAggregateID before it is executed,
//     unless the On functions of the model have ResolveRows. A MERGE, an INSERT from a SELECT, and
//     statements with comments are always refused; see Config.AllowKeyless.
//   - A statement with several models that changes only some of them (DO NOTHING, a further
//     condition) does not commit if RETURNING does not say which: COMMIT rolls back and returns an
//     error wrapping core.ErrNoAggregateID. Returning("*") needs no further query. If only the key
//     is returned, the rows are read back for On functions.
//   - The same rules hold for recorded events, unless there is one model and its events have an
//     AggregateID of their own. If the rows of RETURNING cannot be assigned to models with recorded
//     events, the transaction does not commit.
//   - Values that the database computes (Set("stock = stock - 1"), an upsert) are read back for On
//     functions, by one more SELECT, unless Returning("*") returns them. The read also proves that
//     an upsert changed the row with the key of its model. Recorded events have the content that
//     the code gave them.
//   - Raw SQL, Table(...) without a model, maps, and statements within a WITH are not seen. Use
//     Publish there.
//
// A statement that has to write events needs a tracked transaction. Without one it is refused with
// core.ErrNoTransaction or core.ErrUntracked before it is executed. If the events cannot be written
// after the statement (an event is not valid, an On function fails), its transaction does not
// commit: COMMIT rolls back and returns the error. With the model hooks (see AfterInsert) the
// statement itself fails.
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
