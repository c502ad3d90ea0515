// Package inbox makes Watermill consumers idempotent: the effect of a message in the database
// happens once, however often the message is delivered.
//
//	// database/sql
//	router.AddMiddleware(inbox.SQL(db, "billing", inbox.CreateTables()))
//	// the ORM of the handler: gormoutbox, bunoutbox or entoutbox
//	router.AddMiddleware(inbox.Middleware(gormoutbox.Transactor(db), "billing", inbox.CreateTables()))
//
// It is the adapter of package core/inbox, which has the settings, the errors and the tables. Import
// that package as coreinbox where you need it: [Wrap] takes its Inbox and its AtLeastOnce.
//
// For each message the middleware opens a transaction and writes the event's id into a table. If
// the id is there already, the message is acknowledged without the handler. Otherwise the handler
// runs, with the transaction in the message's context (gormoutbox.FromContext(msg.Context())). The
// transaction has the id, the changes of the handler, and the messages that it returned, which go
// through the outbox ([Publisher]). All of them commit together, and only then the message is
// acknowledged. A crash, an error or a panic before the commit rolls all of them back. After the
// commit the message only has to be acknowledged.
//
// # What it does not promise
//
// Effects outside the transaction (mail, HTTP calls, another database) happen as often as the
// handler runs: write a durable command, or an event of the outbox, in the transaction instead.
// Messages keep the broker's order, except with OnlyNewer of the inbox. Once an id is deleted, its
// event is new again: see Retention of the inbox.
//
// # Identity
//
// An event is remembered for a consumer, a handler, a tenant and an event id, compared byte by
// byte. Consumer is a name that you choose and keep: a service whose name changes processes
// everything again. Each handler of a Router has its own name, so two handlers of one topic both
// run. The event id comes from the metadata and never from the payload: see [MessageOf].
//
// # Order of middleware
//
// The first middleware that is added is the outermost. Only one order works:
// Poison(Retry(Inbox(handler))), which the options [Poison] and [Retry] build. A Retry inside
// repeats the handler in a transaction that has failed. On databases where such a transaction goes
// on, it also has half of the first attempt. A Poison inside turns the failure into a success, and
// would commit the changes that the handler made before it failed. The inbox notices that, and
// refuses to commit with [ErrPoisonInside]. Watermill's own Deduplicator marks a message as seen
// before it is handled, so a failure loses the message: leave it out.
package inbox
