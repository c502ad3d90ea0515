// Package entoutbox makes events part of the transactions of Ent. The changes of a transaction and
// its events commit together, and after the commit the events are sent through a publisher.
//
//	drv, ob, err := entoutbox.Open(ctx, "pgx", dsn, entoutbox.Config{Publisher: publisher, AutoCreate: true})
//	client := ent.NewClient(ent.Driver(drv))
//	client.Use(ob.Hook())
//	entoutbox.On(ob, func(op core.Op, o *ent.Order) []core.Event { ... })
//	go ob.Run(ctx)
//
// For an existing driver of entsql.Open or entsql.OpenDB use New, and make clients on the driver
// that Outbox.Driver returns.
//
// There are two ways to publish an event. First, a function derives it from an entity or from a
// mutation (see On and OnMutation). Second, the code calls Outbox.Publish. Generated entities
// cannot embed a Recorder.
//
// # Captured statements
//
// On is called once for each row that a statement inserted, updated or deleted, with the entity as
// the database stored it (deleted: as it was). The driver sees the statements after every hook and
// policy, and the database names the rows: by RETURNING, and by locked reads with the statement's
// own condition on MySQL and MariaDB.
//
//   - Row and event commit together. Outside of a transaction, a statement that causes events gets
//     a transaction of its own; if its COMMIT fails, the statement returns that error. Hooks of the
//     application run outside of it, as without the outbox. In the context of an On function, every
//     client of the driver works in the transaction of the statement.
//   - Edges are foreign keys of other rows. These rows change and cause events: AddLines causes
//     events of the lines, and not of the order, unless a field of the order changes too. Join
//     tables have no type.
//   - An upsert (OnConflict) is OpUpsert, and DoNothing is OpCreate of the rows that were new. On
//     PostgreSQL and SQLite, Ignore updates the existing row and reports it.
//   - An update to equal values is an update. An update that finds no row causes no event.
//   - Soft deletes by a hook that turns a delete into an update are OpDelete, with the row as it is
//     afterwards. A change that is rolled back to a savepoint causes no event.
//   - If a hook of the application fails after the save, row and event stay, as Ent keeps the row.
//     If an On function fails, the transaction does not commit: COMMIT rolls back and returns the
//     error, unless the change was rolled back to a savepoint before.
//   - Not seen are SQL that is run through ExecContext, cascades, and changes by triggers. Use
//     Publish there.
//
// An event without an AggregateID gets the id of the entity: texts as they are, bytes in hex.
// AggregateType, which is the event's topic by default, is filled in only if the entity has a method
// AggregateType() string. Write it in a file of your own beside the generated ones.
//
// Some statements are refused with core.ErrNoAggregateID, because their rows cannot be determined:
// on MySQL and MariaDB conditions that are different each time they are read (RAND()), and some
// upserts in bulk on tables with several unique keys. Functions of OnMutation need the mutation of
// each row, so two statements are refused for them and not for On: a bulk of which the database
// stored only some rows, with other values, and a mutation whose context a hook of the application
// did not pass on.
//
// # Generated code
//
// Publish(ctx, tx) needs a client that was generated with the feature sql/execquery:
//
//	//go:generate go run -mod=mod entgo.io/ent/cmd/ent generate --feature sql/execquery ./schema
//
// Then *ent.Tx, clients of a transaction and mutations have a method ExecContext, through which
// Publish finds their transaction. With other clients, Publish takes nil within WithTx, or RunInTx
// of a Transactor, because there the context carries the transaction. The functions of On need
// neither.
//
// # Tracked transactions
//
// Every transaction of a client on Driver is tracked, with savepoints set by ExecContext, and so
// are the transactions of Debug clients. The driver is below the generated code. So if a commit
// hook (tx.OnCommit) returns an error after the COMMIT, tx.Commit fails, but the events are sent.
//
// A client on another driver is refused with core.ErrNotInstalled, and a transaction of another
// database with core.ErrOtherDatabase, before anything is written.
//
// # Tables
//
// The tables are created by AutoCreate, by the migrations of sqloutbox, or by Ent's own migration:
// see package entschema.
package entoutbox
