// Package gormoutbox makes events part of GORM's transactions: what a transaction stores and the
// events it causes commit together, and after the commit the events leave through a publisher.
//
//	ob := gormoutbox.Plugin(gormoutbox.Config{Publisher: publisher, AutoCreate: true})
//	if err := db.Use(ob); err != nil { ... }
//	go ob.Run(ctx)
//
// There are three ways to say that something happened. A model records it, and the events are
// written when the model is created, updated, saved or deleted:
//
//	type Order struct {
//		ID, Status string
//		core.Recorder `gorm:"-"`
//	}
//	order.Record(OrderPlaced{OrderID: order.ID}) // OrderPlaced has a method EventType() string
//
// Install the plugin with db.Use before: on a *gorm.DB without it the row is stored, without the
// event and without an error, which only a test can find (outboxtest.RequireNothingRecorded).
//
// A function derives events from what was stored (see On and OnContext), or the code says it itself
// (see Publish), for example in the model's own hook AfterCreate(tx *gorm.DB) error.
//
// # What is captured
//
// Recorded events and On functions see every statement of GORM's create, update, delete and save
// methods on a model value: batches element by element, associations, soft deletes, UpdateColumn,
// and statements with SkipHooks too. An event without an AggregateID gets the primary key of its
// element: several primary keys are joined by commas, bytes are written in hex. AggregateType is
// filled in only when the model has a method AggregateType() string.
//
// A statement reports events only when the database said which rows it changed: their keys came
// back in RETURNING, or as many rows were affected as there are models. Any other is refused with
// core.ErrNoAggregateID, for On functions and for recorded events, before it is executed where that
// can be known (else the error comes after it, and the transaction must not commit). For On
// functions there are two ways out: ResolveRows reads the rows that a statement is about to change,
// and Config.AllowKeyless lets it pass without events. What that means:
//
//   - Updates and deletes of one model by its key say what they change, with further conditions too
//     (an optimistic lock). So do those of a slice of models, but not with further conditions.
//     Where(...).Delete(&Order{}), Delete(&Order{}, id), conditions joined by OR and the updates
//     and deletes of gorm.G do not.
//   - A statement that found no row causes no event; recorded events stay recorded. MySQL and
//     MariaDB do not count a row that has the new values already: the plugin looks for the row
//     then, and when it is there the update counts as on other databases (RowsAffected is 1). Of a
//     slice some of whose rows have the new values they do not say which: ResolveRows helps.
//   - Update with gorm.Expr, or of a model given by value, leaves the old values in the model: On
//     functions get them with clause.Returning{} or ResolveRows, and the statement is refused
//     without. So is an upsert whose DoUpdates have an expression.
//   - MySQL has no RETURNING (MariaDB has it for inserts). There an upsert is refused when the
//     table has unique keys besides its primary key, and else the rows are read once more for On
//     functions, because a row that was there keeps what was not set. MySQL refuses SAVEPOINT as a
//     prepared statement: with PrepareStmt use Transaction or SavePoint, not Exec("SAVEPOINT ...").
//   - OnConflict makes OpUpsert: databases differ in whether they tell a new row from one that was
//     there. With DoNothing PostgreSQL and SQLite tell it of one model, and of a batch with keys of
//     its own when all were inserted. A batch with generated keys is refused: insert one by one, or
//     with clause.Returning{}, which leaves the slice with what was inserted. MySQL and MariaDB
//     tell nothing, so that DoNothing is refused there, unless keys are generated and the table has
//     no other unique key.
//   - Children that GORM saves along with a parent are OpCreate when their key was generated. Those
//     that have a key are looked up first: one that is there and stays as it is causes no event,
//     and what was recorded on it stays recorded, because GORM stores no more than its foreign key,
//     unless FullSaveAssociations is set. Children are captured before their parent when GORM saves
//     them after it.
//   - Raw SQL, Table(...) without a model, and Create from a map are not seen or refused. Use
//     Publish there.
//
// A Recorder keeps events for the value on which they were recorded: storing a copy while they wait
// is refused with core.ErrRecorderCopied (see core.Recorder), and a model with a Recorder in a
// named field, where it would record into nothing, with core.ErrHiddenRecorder.
//
// Everything needs a transaction. GORM opens one for each single statement by itself, unless
// SkipDefaultTransaction is set: then a statement that would have to write events is refused with
// core.ErrNoTransaction before it is executed.
//
// # Which transactions are followed
//
// The plugin hears the commit of every transaction that is begun on the *gorm.DB it is used on,
// savepoints and prepared statements included. It hears those of a pool opened with sqltx.Connector
// wherever they come from. Some ways around both exist: db.Connection, a *sql.Tx put into a
// statement, sessions that were made with WithContext before db.Use, and
// Clauses(dbresolver.Write).Transaction when dbresolver was used before this plugin (use this
// plugin first). Events of such transactions are as safe, but wait for the poller;
// Config.RejectUntracked refuses them.
//
// All databases that dbresolver may write to must be one and the same, reached over different
// connections: the relay looks into the database of the *gorm.DB only.
package gormoutbox
