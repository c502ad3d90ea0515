// Package sqltx observes transactions of database/sql: it reports the outcome of a transaction, or
// of its part since a savepoint. It uses no tables, and sends no statement of its own while all
// goes well.
//
// There are three ways to a core.Tx, which Publish of an outbox and AfterCommit take:
//
//   - Open, OpenDB and Connector wrap the driver when the pool is opened. Every transaction of the
//     pool is then tracked, and TxOf finds it behind any *sql.Tx. Prefer this way.
//   - Begin and NewTransactor begin tracked transactions on a pool that was opened in another way.
//   - TxOf of a *sql.Tx of any other pool returns a transaction that is not tracked: its events
//     commit with it, and the poller publishes them.
//
// All three follow one rule: any doubt means core.Unknown. core.Committed is reported only after
// the database confirmed COMMIT, and only for changes that were not rolled back to a savepoint
// before.
//
// Adapters of ORMs use Follow, TrackConn, Visit and WrapTx. Adapters of libraries without
// database/sql use a Tracker.
package sqltx
