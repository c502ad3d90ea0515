// Package walrelay publishes events that it reads from the log of PostgreSQL.
//
// The processes that insert set core.Config.RelayedByLog. A Relay reads committed events from a
// replication slot, in the order of the commits, and publishes them through any core.Publisher:
//
//	relay, err := walrelay.New(walrelay.Config{
//		Pool: pool, Slot: "outbox", Create: true, Outbox: core.Config{Publisher: publisher},
//	})
//	err = relay.Run(ctx)
//
// Nothing is polled, claimed or marked: an event costs the database its insert. Relays with the
// same slot stand by for each other. The publisher gets the same as from the relay of core, with
// the same workers, retries, breaker, pauses, rates, metrics and traces.
//
// An event that its destination refuses gets an open row in the table, and so do the later events
// of its key. The table is where they are retried, and where people find, redrive and discard them,
// as ever. Other events go on meanwhile, and the server need not keep the log for them. When
// nothing of the key is open any more, it is read from the log again.
//
// The slot is confirmed up to the first event that is neither accepted nor open in the table. A
// crash repeats later events, in the order of each key. A slot that is lost is made again, and
// unpublished events are found in the table: see RepairPolicy.
//
// docs/walrelay.md describes setup and operation, and docs/design/walrelay.md proves it right.
package walrelay
