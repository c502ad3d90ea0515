// Package gormoutbox makes events part of GORM's transactions: what a transaction stores and the events it causes commit
// together, and after the commit the events leave through a publisher.
//
//	ob := gormoutbox.Plugin(gormoutbox.Config{Publisher: publisher, AutoCreate: true})
//	if err := db.Use(ob); err != nil { ... }
//	go ob.Run(ctx)
//
// There are three ways to say that something happened. A model records it, and the events are written when the model is
// created, updated, saved or deleted:
//
//	type Order struct {
//		ID, Status string
//		gormoutbox.Recorder `gorm:"-"`
//	}
//	order.Record(OrderPlaced{OrderID: order.ID}) // OrderPlaced has a method EventType() string
//
// A function derives events from what was stored (see On and OnContext), or the code says it itself (see Publish).
//
// # What is captured
//
// Recorded events and On functions see every statement of GORM's create, update, delete and save methods on a model value:
// batches element by element, associations, soft deletes, UpdateColumn, and statements with SkipHooks too. An event without
// an AggregateID gets the primary key of its element: several primary keys are joined by commas, bytes are written in hex.
// AggregateType is filled in only when the model has a method AggregateType() string.
//
//   - A statement with an ON CONFLICT clause is OpUpsert, never OpCreate: databases differ in whether they tell the two apart.
//     GORM saves associations, and Save of an unknown primary key, that way.
//   - Elements that ON CONFLICT DO NOTHING left without a primary key are passed over. When they have a key from the
//     start, nobody can tell which were skipped, and all are reported. MariaDB and MySQL count a row that was there as
//     changed and hand out its key, so that a skipped element is reported there too: check before you insert.
//   - A statement that changed no row causes no event; recorded events stay recorded. MySQL and MariaDB count an update that
//     sets what was there as no change, unless clientFoundRows=true is in the DSN.
//   - A statement that does not say what it changed (Where(...).Delete(&Order{}), Create from a map) is refused with
//     ErrNoAggregateID when On functions want to see it; see Config.AllowKeyless. Raw SQL and Table(...) without a
//     model are not seen. Use Publish there.
//   - Children of an association are captured before their parent when GORM saves them after it.
//
// Everything needs a transaction. GORM opens one for each single statement by itself, unless SkipDefaultTransaction is set: then a
// statement that would have to write events is refused with ErrNoTransaction before it is executed.
//
// # Which transactions are followed
//
// The plugin hears the commit of every transaction that is begun on the *gorm.DB it is used on, savepoints and prepared
// statements included. It hears those of a pool opened with sqloutbox.Connector wherever they come from. Some ways around
// both exist: db.Connection, a *sql.Tx put into a statement, sessions that were made with WithContext before db.Use, and
// Clauses(dbresolver.Write).Transaction when dbresolver was used before this plugin (use this plugin first). Events of
// such transactions are as safe, but wait for the poller; Config.RejectUntracked refuses them.
//
// All databases that dbresolver may write to must be one and the same, reached over different connections: the relay looks
// into the database of the *gorm.DB only.
package gormoutbox
