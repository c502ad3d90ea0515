// Package sqltx makes transactions of database/sql heard: it tells what has become of a
// transaction, or of the part of it since a savepoint. It knows no tables and sends no statement of
// its own while all goes well.
//
// There are three ways to a core.Tx, which Publish of an outbox and AfterCommit take:
//
//   - Open, OpenDB and Connector wrap the driver when the pool is opened. Every transaction of the
//     pool is then tracked, whoever begins it, and TxOf finds it behind any *sql.Tx. This is the
//     way to prefer.
//   - Begin and NewTransactor begin tracked transactions on a pool that was opened without that.
//   - TxOf of a *sql.Tx from anywhere else gives a transaction that is not tracked: its events
//     commit with it, and wait for the poller.
//
// The rule of all of them: any doubt means core.Unknown. core.Committed is reported only after
// COMMIT was answered well, and for what was not rolled back to a savepoint before.
//
// Adapters of ORMs use Follow, TrackConn, Visit and WrapTx; whoever has neither database/sql nor
// one of them uses a Tracker.
package sqltx
