// Package entoutbox makes events part of the transactions of Ent: what a transaction stores and the
// events it causes commit together, and after the commit the events leave through a publisher.
//
//	drv, ob, err := entoutbox.Open(ctx, "pgx", dsn, entoutbox.Config{Publisher: publisher, AutoCreate: true})
//	client := ent.NewClient(ent.Driver(drv))
//	client.Use(ob.Hook(entoutbox.OnMutation(
//		func(ctx context.Context, m *ent.OrderMutation, v ent.Value) ([]core.Event, error) { ... })))
//	go ob.Run(ctx)
//
// Or, on a driver that entsql.Open or entsql.OpenDB returned, New, and clients on the driver that
// Outbox.Driver returns.
//
// There are two ways to say that something happened: functions derive events from mutations (see
// On), or the code says it itself (see Outbox.Publish). Generated entities have no room for a
// Recorder.
//
// # Generated code
//
// Generate the client with the feature sql/execquery:
//
//	//go:generate go run -mod=mod entgo.io/ent/cmd/ent generate --feature sql/execquery ./schema
//
// Then *ent.Tx, clients of a transaction and mutations have a method ExecContext, through which
// this package finds the transaction they are in. Clients generated without it work within WithTx,
// or RunInTx of a Transactor: there the context carries the transaction. Publish takes nil for it.
//
// # Captured statements
//
// On functions see the creates, updates and deletes of a client with the hook, entity by entity,
// after they were executed.
//
//   - Everything needs a transaction: client.Tx, client.BeginTx or WithTx. A single
//     client.Order.Create().Save runs in none, and what Ent begins by itself for an entity with
//     edges has committed before a hook can write. Mutations that On functions are for are refused
//     with core.ErrNoTransaction there, before they are executed.
//   - An event is written if, and only if, the database said that its row was changed. A hook that
//     answers in place of a mutation causes the events of what it did itself. When a hook or an On
//     function fails after the row was stored, the transaction does not commit: COMMIT rolls back
//     and returns the error, unless it was rolled back to a savepoint before.
//   - An upsert (OnConflict) is OpUpsert, never OpCreate, and v is read back: one SELECT more. One
//     that did nothing causes no event: Ent returns sql.ErrNoRows for it. On PostgreSQL and SQLite,
//     Ignore updates the row that was there and reports it.
//   - CreateBulk causes events in the order of the builders, in one statement. With DoNothing
//     nobody can tell which rows were there already: it is refused with core.ErrNoAggregateID; see
//     Config.AllowKeyless. A bulk with OnConflict that leaves some rows out fails with
//     core.ErrNoAggregateID. On MySQL and MariaDB, Ent guesses the generated ids of an upsert in
//     bulk: On functions have to set AggregateID, and v is the entity as it was given.
//   - Updates and deletes of many (client.Order.Update().Where(...)) do not say which rows they
//     change: they are refused with core.ErrNoAggregateID, unless the On functions have the option
//     ResolveRows. Or change entities one by one, or use Publish.
//   - An update or a delete of one entity whose condition was given as text with an OR outside of
//     parentheses is refused with core.ErrNoAggregateID before it is executed: Ent joins the id to
//     it by AND, and other rows would be changed.
//   - An update that changed no row causes no event. MySQL and MariaDB do not count a row that is
//     as it shall be, unless clientFoundRows=true is in the DSN.
//   - Hooks of the application must pass their context on: the statements of a mutation are known
//     by it. One that does not makes the mutation fail with core.ErrNoAggregateID.
//   - Soft deletes by a hook that turns a delete into an update are seen once, as OpDelete.
//   - A change that a hook rolls back to a savepoint causes no event.
//   - v is what Ent returns: UpdateOne with Select leaves the other fields empty.
//   - SQL that is run through ExecContext is not seen. Use Publish there.
//
// An event without an AggregateID gets the id of the entity: texts as they are, bytes in hex.
// AggregateType is for On functions to set.
//
// Hooks of the client that were registered before this one run around it: their errors come after
// the events were recorded. After any error, roll the transaction back. Those registered later run
// within it. Privacy policies and hooks of the schema run within it: what they deny or change is
// known by then.
//
// # Which transactions are followed
//
// All that are begun by a client on Driver, with savepoints set by ExecContext, and Debug clients.
// The driver is below the generated code: when a hook on commits (tx.OnCommit) returns an error
// after the COMMIT, tx.Commit fails, and the events leave all the same.
//
// The Hook of an outbox is for clients on the Driver of the same outbox, or of one on the same
// *sql.DB; others are refused with core.ErrNotInstalled.
//
// # Tables
//
// AutoCreate creates them, the migrations of sqloutbox do, or Ent's own migration: see package
// entschema.
package entoutbox
