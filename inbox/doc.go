// Package inbox makes Watermill consumers idempotent: the effect of a message in the database
// happens once, however often the message is delivered.
//
//	router.AddMiddleware(inbox.SQL(db, "billing", inbox.CreateTables()))                               // database/sql
//	// or bunoutbox, entoutbox: the ORM of the handler
//	router.AddMiddleware(inbox.Middleware(gormoutbox.Transactor(db), "billing", inbox.CreateTables()))
//
// New and Chain build the same from its parts.
//
// For each message it opens a transaction and writes the event's id into a table. If it was there,
// the message is acknowledged and the handler not run. Else the handler runs with the transaction
// in the message's context (gormoutbox.FromContext(msg.Context())); the id, what the handler wrote
// there and the messages it returned (through the outbox: Config.Publisher) commit together, and
// only then is the message acknowledged. A crash, an error or a panic before the commit leaves
// nothing behind, and after it nothing to do.
//
// # What it does not promise
//
// Effects outside the transaction (mail, HTTP calls, another database) happen as often as the
// handler runs: write a durable command, or an event of the outbox, in the transaction instead. The
// order of messages is the broker's matter, save for Config.OnlyNewer. Once an id is deleted, its
// event is new again: see Config.Retention.
//
// # Identity
//
// An event is remembered for a consumer, a handler, a tenant and an event id, compared byte by
// byte. Consumer is a name that you choose and keep: a service whose name changes processes
// everything again. The handler is that of the Router, so two handlers of one topic both run. The
// event id comes from the metadata and never from the payload: see Config.EventID.
//
// # Order of middleware
//
// The first middleware that is added is the outermost. Only one order works:
// Poison(Retry(Inbox(handler))), which Chain builds. Retry inside repeats the handler in a
// transaction that has failed, and on databases where it goes on, with half of the first attempt in
// it. Poison inside turns the failure into a success: what the handler wrote before it failed is
// committed (the inbox notices, and refuses to commit with ErrPoisonInside). Watermill's own
// Deduplicator marks a message as seen before it is handled, so a failure loses it: leave it out.
package inbox
