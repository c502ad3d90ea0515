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
// Second, a function derives events from the saved model (see On and OnContext). Third, the model's
// own hook AfterCreate(tx *gorm.DB) error calls Publish. Fourth, any other code of the transaction
// calls Publish.
//
// # Captured statements
//
// Recorded events and On functions see every statement of GORM's create, update, delete and save
// methods on a model value: batches element by element, associations, soft deletes, UpdateColumn,
// and statements with SkipHooks too. An event without an AggregateID gets the primary key of its
// element. Several primary keys are joined by commas, and bytes are written in hex. AggregateType
// is filled in only if the model has a method AggregateType() string.
//
// A statement reports events only if the database said which rows it changed: their keys came back
// in RETURNING, or as many rows were affected as there are models. Any other statement is refused
// with core.ErrNoAggregateID, for On functions and for recorded events. The plugin refuses it
// before it is executed if it can. Otherwise the error comes after it, and the transaction must not
// commit. For On functions there are two ways out: ResolveRows reads the rows that a statement is
// about to change, and Config.AllowKeyless lets the statement pass without events. In detail:
//
//   - Updates and deletes of one model by its key tell which row they change, with further
//     conditions too (an optimistic lock). So do those of a slice of models, but not with further
//     conditions. Where(...).Delete(&Order{}), Delete(&Order{}, id), conditions joined by OR and
//     the updates and deletes of gorm.G do not.
//   - A statement that found no row causes no event. Recorded events stay recorded. MySQL and
//     MariaDB do not count a row that already has the new values: the plugin then looks for the
//     row. If it exists, the update counts as on other databases (RowsAffected is 1). If some rows
//     of a slice have the new values, these databases do not tell which: use ResolveRows.
//   - Update with gorm.Expr, or of a model given by value, leaves the old values in the model. On
//     functions get the new ones with clause.Returning{} or ResolveRows, and the statement is
//     refused without. So is an upsert whose DoUpdates have an expression.
//   - MySQL has no RETURNING (MariaDB has it for inserts). There an upsert is refused if the table
//     has unique keys besides its primary key. Otherwise the rows are read once more for On
//     functions, because an existing row keeps the values that were not set. MySQL refuses
//     SAVEPOINT as a prepared statement: with PrepareStmt use Transaction or SavePoint, not
//     Exec("SAVEPOINT ...").
//   - OnConflict makes OpUpsert, because not every database tells a new row from an existing one.
//     With DoNothing, PostgreSQL and SQLite tell it for one model, and for a batch with keys of its
//     own if all were inserted. A batch with generated keys is refused: insert one by one, or with
//     clause.Returning{}, after which the slice has only the inserted elements. MySQL and MariaDB
//     do not tell, so DoNothing is refused there, unless keys are generated and the table has no
//     other unique key.
//   - Children that GORM saves along with a parent are OpCreate if their key was generated.
//     Children with a key are looked up first. An existing child that does not change causes no
//     event, and its recorded events stay recorded, because GORM saves only its foreign key, unless
//     FullSaveAssociations is set. Children are captured before their parent if GORM saves them
//     after it.
//   - Raw SQL, Table(...) without a model, and Create from a map are not seen or refused. Use
//     Publish there.
//
// A Recorder keeps events for the value on which they were recorded. Saving a copy while they wait
// is refused with core.ErrRecorderCopied (see core.Recorder). A model with a Recorder in a named
// field, where its events would be lost, is refused with core.ErrHiddenRecorder.
//
// Events need a transaction. GORM opens one for each single statement by itself, unless
// SkipDefaultTransaction is set. Then a statement that would have to write events is refused with
// core.ErrNoTransaction before it is executed.
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
// A statement that causes events is refused there with core.ErrUntracked before it is executed: one
// of a model with an On function, with recorded events, or with a Recorder and hooks, which may
// record. Nothing could keep such a transaction from committing the row without its events, and
// nobody would tell the Recorder that they were rolled back. Begin the transaction on the *gorm.DB,
// open the pool with sqltx.Connector, or call Publish. The events of Publish are as safe as
// elsewhere, but wait for the poller; Config.RejectUntracked refuses them too.
//
// If an event is recorded on a model only after its row was stored (by a hook of an association),
// the error comes after the statement. The event stays recorded. Roll the transaction back.
//
// All databases that dbresolver may write to must be the same database, reached over different
// connections: the relay looks only into the database of the *gorm.DB.
package gormoutbox
