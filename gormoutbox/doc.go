// Package gormoutbox makes events part of GORM's transactions. The changes of a transaction and its
// events commit together, and after the commit the events are sent through a publisher.
//
//	ob := gormoutbox.Plugin(gormoutbox.Config{Publisher: publisher, AutoCreate: true})
//	if err := db.Use(ob); err != nil { ... }
//	go ob.Run(ctx)
//
// There are four ways to publish an event. First, a model records it, and the event is written
// when the model is created, updated, saved or deleted:
//
//	type Order struct {
//		ID, Status string
//		core.Recorder `gorm:"-"`
//	}
//	order.Record(OrderPlaced{OrderID: order.ID}) // OrderPlaced has a method EventType() string
//
// Install the plugin with db.Use before the first statement. On a *gorm.DB without it the row is
// saved without the event and without an error, which only a test can find
// (outboxtest.RequireNothingRecorded).
//
// Second, a function derives events from the stored rows (see On and OnContext). Third, the model's
// own hook AfterCreate(tx *gorm.DB) error calls Publish. Fourth, any other code of the transaction
// calls Publish.
//
// # Captured statements
//
// Recorded events and On functions see every statement of GORM's create, update, delete and save
// methods on a model: batches, conditions, associations, soft deletes, UpdateColumn, gorm.G, and
// statements with SkipHooks too. An On function is called once for each row that the statement
// inserted, updated or deleted, with the row as the database stored it (deleted: as it was).
// Recorded events are published with their row; if the statement did not change the row, they stay
// recorded, and RowsAffected does not count the row. The database itself names the rows, so nothing
// depends on the fields of the model in memory. An event without an AggregateID gets the primary
// key of its row. Several primary keys are joined by commas, and bytes are written in hex.
// AggregateType, which is the event's topic by default, is filled in only if the model has a method
// AggregateType() string. In detail:
//
//   - OnConflict makes OpUpsert, because not every database distinguishes a new row from an
//     existing one. With DoNothing, the rows that were inserted are OpCreate.
//   - A row counts as changed if the statement found it, even if it had the new values already.
//     Save of a parent stores each loaded has-many child by an upsert, so each causes OpUpsert.
//   - If an update changes the primary key, the event has the new key only.
//   - The events of the rows are written right after the statement, before After hooks and has-many
//     children, whose own events follow.
//   - If several rows changed and it is not certain which of them is the row of a model with
//     recorded events, the error is core.ErrNoAggregateID, and the transaction does not commit.
//     Examples are a condition with a model without a key, and a DoNothing batch with generated
//     keys that was inserted in part. Events with their own AggregateID are published all the same.
//   - An update or delete of more than 100,000 rows is refused with core.ErrTooManyRows.
//   - Raw SQL, Table(...) without a model, cascades and changes by triggers are not seen. Use
//     Publish there. In a dry run nothing is published.
//   - MySQL refuses SAVEPOINT as a prepared statement: with PrepareStmt use Transaction or
//     SavePoint, not Exec("SAVEPOINT ...").
//
// A Recorder keeps events for the value on which they were recorded. Saving a copy while they wait
// is refused with core.ErrRecorderCopied (see core.Recorder). A model with a Recorder in a named
// field, where its events would be lost, is refused with core.ErrHiddenRecorder.
//
// Events need a transaction. GORM opens one for each single statement. If SkipDefaultTransaction is
// set, the plugin opens one for a statement that may cause events. It ends after the hooks, so that
// the error of a hook rolls the row back.
//
// # Tracked transactions
//
// The plugin tracks every transaction that is begun on the *gorm.DB it is used on, savepoints and
// prepared statements included. With a pool opened with sqltx.Connector, every transaction of the
// pool is tracked. Without such a pool, these transactions are not tracked:
//
//   - a transaction in db.Connection;
//   - a *sql.Tx that was put into a statement;
//   - a transaction of a session that was made with WithContext before db.Use;
//   - Clauses(dbresolver.Write).Transaction, if dbresolver was used before this plugin (use this
//     plugin first).
//
// A statement that causes events is refused there with core.ErrUntracked before it is executed: a
// statement of a model with an On function, with recorded events, or with a Recorder and hooks,
// which may record. Such a transaction could commit the row without its events, and the Recorder
// would not get them back after a rollback. Begin the transaction on the *gorm.DB, open the pool
// with sqltx.Connector, or call Publish. The events of Publish are as safe as elsewhere, but wait
// for the poller; Config.RejectUntracked refuses them too.
//
// If an event is recorded on a model only after its row was stored (by a hook of an association),
// the error comes after the statement. The event stays recorded. Roll the transaction back.
//
// All databases that dbresolver may write to must be the same database, reached over different
// connections: the relay looks only into the database of the *gorm.DB.
package gormoutbox
