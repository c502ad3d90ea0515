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
// # Generated code
//
// Generate the client with the feature sql/execquery:
//
//	//go:generate go run -mod=mod entgo.io/ent/cmd/ent generate --feature sql/execquery ./schema
//
// Then *ent.Tx, clients of a transaction and mutations have a method ExecContext, through which
// this package finds their transaction. Clients generated without it work within WithTx, or RunInTx
// of a Transactor, because there the context carries the transaction. Publish then takes nil for
// it.
//
// # Captured statements
//
// On functions see the creates, updates and deletes of a client with the hook, entity by entity,
// after they were executed.
//
//   - Everything needs a transaction: client.Tx, client.BeginTx or WithTx. A single
//     client.Order.Create().Save runs in none. A transaction that Ent begins by itself for an
//     entity with edges has committed before a hook can write. In both cases, mutations of On
//     functions are refused with core.ErrNoTransaction before they are executed.
//   - An event is written if, and only if, the database said that its row was changed. A hook that
//     answers in place of a mutation causes the events of its own mutations. If a hook or an On
//     function fails after the row was saved, the transaction does not commit: COMMIT rolls back
//     and returns the error, unless the change was rolled back to a savepoint before.
//   - An upsert (OnConflict) is OpUpsert, never OpCreate, and v is read back by one more SELECT. An
//     upsert that changed nothing causes no event: Ent returns sql.ErrNoRows for it. On PostgreSQL
//     and SQLite, Ignore updates the existing row and reports it.
//   - CreateBulk causes events in the order of the builders, in one statement. With DoNothing Ent
//     does not tell which rows existed already, so it is refused with core.ErrNoAggregateID; see
//     Config.AllowKeyless. A bulk with OnConflict that leaves some rows out fails with
//     core.ErrNoAggregateID. On MySQL and MariaDB, Ent guesses the generated ids of an upsert in
//     bulk: On functions have to set AggregateID, and v is the entity as it was given.
//   - Updates and deletes of many (client.Order.Update().Where(...)) do not tell which rows they
//     change. They are refused with core.ErrNoAggregateID, unless the On functions have the option
//     ResolveRows. You can also change entities one by one, or use Publish.
//   - The update or delete of one entity is refused with core.ErrNoAggregateID before it is
//     executed if its condition was given as text with an OR outside of parentheses. Ent joins the
//     id to such a condition by AND, and other rows would be changed.
//   - An update that changed no row causes no event. MySQL and MariaDB do not count a row that
//     already has the new values, unless clientFoundRows=true is in the DSN.
//   - Hooks of the application must pass their context on, because the outbox recognises the
//     statements of a mutation by the context. A hook that does not makes the mutation fail with
//     core.ErrNoAggregateID.
//   - Soft deletes by a hook that turns a delete into an update are seen once, as OpDelete.
//   - A change that a hook rolls back to a savepoint causes no event.
//   - v is what Ent returns: UpdateOne with Select leaves the other fields empty.
//   - SQL that is run through ExecContext is not seen. Use Publish there.
//
// An event without an AggregateID gets the id of the entity: texts as they are, bytes in hex. On
// functions have to set AggregateType.
//
// Hooks of the client that were registered before this one run around it: their errors come after
// the events were recorded. After any error, roll the transaction back. Hooks that were registered
// later run within it. Privacy policies and hooks of the schema run within it too, so this hook
// sees what they deny or change.
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
