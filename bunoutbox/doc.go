// Package bunoutbox makes events part of Bun's transactions: what a transaction stores and the events it causes commit
// together, and after the commit the events leave through a publisher.
//
//	db := bun.NewDB(sql.OpenDB(sqloutbox.Connector(connector, "")), pgdialect.New())
//	ob, err := bunoutbox.New(db, bunoutbox.Config{Publisher: publisher, AutoCreate: true})
//	db = ob.DB() // captures events: work with this one
//	go ob.Run(ctx)
//
// There are three ways to say that something happened. A model records it, and the events are written when the model is
// inserted, updated or deleted:
//
//	type Order struct {
//		ID     string `bun:",pk"`
//		Status string
//		bunoutbox.Recorder `bun:"-"`
//	}
//	order.Record(OrderPlaced{OrderID: order.ID}) // OrderPlaced has a method EventType() string
//
// A function derives events from what was stored (see On and OnContext), or the code says it itself (see Outbox.Publish).
//
// # What is captured
//
// Recorded events and On functions see the NewInsert, NewUpdate and NewDelete of a *bun.DB that has the hook, when they have a
// Model: batches element by element, bulk updates, soft deletes too. An event without an AggregateID gets the primary key of
// its element: several primary keys are joined by commas, bytes are written in hex. AggregateType is filled in only when
// the model has a method AggregateType() string.
//
//   - An insert with ON CONFLICT, ON DUPLICATE KEY, IGNORE or REPLACE is OpUpsert, never OpCreate: databases differ in whether they
//     tell the two apart.
//   - A statement that changed no row causes no event; recorded events stay recorded. MySQL and MariaDB count an update that
//     sets what was there as no change, unless clientFoundRows=true is in the DSN.
//   - On functions are shown what a statement is known to have changed. An update or delete must name its rows by the keys of its
//     models: with WherePK, Bulk, or Where("id = ?", order.ID). Everything else, such as Model((*Order)(nil)).Where(...), a
//     MERGE, an INSERT from a SELECT, is refused with ErrNoAggregateID before it is executed; see Config.AllowKeyless.
//   - Rows of a batch that DO NOTHING passed over, with keys from the start: nobody can tell which they were, and all are reported.
//   - Bun reads what RETURNING gives over the models of a slice in the order of the rows, whichever they are. Where that mixes rows, On
//     functions need Returning("*"); otherwise it is an error.
//   - Raw SQL, Table(...) without a model, maps, and statements within a WITH are not seen. Use Publish there.
//
// A statement that has to write events needs a transaction that is tracked, and is refused with ErrNoTransaction or ErrUntracked
// before it is executed. When its events cannot be written after it (an event is not valid, an On function fails), its
// transaction does not commit: COMMIT rolls back and returns the error. With the model hooks (see AfterInsert) the
// statement itself fails.
//
// Other query hooks see one or two queries more for each captured statement, SELECT 1 with a comment: that is how the transaction of
// the statement is found. A connection that is followed answers them itself.
//
// # Which transactions are followed
//
// On a pool opened with sqloutbox.Connector all of them, savepoints and prepared statements included, with any context. On
// another pool those that Outbox.RunInTx and Transactor begin, in the same way. Publish works in Bun's own transactions of
// such a pool as well: its events are as safe, but wait for the poller; Config.RejectUntracked refuses them.
//
// Nest with Outbox.RunInTx. Bun's own nested RunInTx rolls its savepoint back with the context it was given: when that has ended,
// ROLLBACK TO is not sent, and the outer transaction commits what the inner one wrote, with its events.
package bunoutbox
