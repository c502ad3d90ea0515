// Package sqloutbox keeps the outbox in PostgreSQL, MariaDB, MySQL 8 or SQLite, and makes transactions of database/sql ones that
// package core can follow.
//
// Everything in one call, a pool whose transactions are followed, its outbox, and the tables where that is asked for:
//
//	db, ob, err := sqloutbox.Open(ctx, "pgx", dsn, sqloutbox.OpenConfig{Publisher: publisher, AutoCreate: true})
//
// Or by hand. The table:
//
//	repo, err := sqloutbox.New(pool, sqloutbox.Config{})
//	err = repo.Migrate(ctx)                           // create or upgrade the tables; or apply what Migrations returns with your own tool
//	err = repo.Check(ctx)                             // at start: name what differs
//	ob, err := core.New(core.Config{Repository: repo, Publisher: publisher})
//
// The transactions, one of three ways:
//
//   - Connector wraps the driver when the pool is opened. Every transaction of the pool is then followed, whoever begins it, and TxOf
//     finds it behind any *sql.Tx. This is the way to prefer.
//   - Begin and NewTransactor begin transactions that are followed on a pool that was opened without it.
//   - TxOf of a *sql.Tx from anywhere else gives a transaction that is not followed: its events commit with it, and wait for
//     the poller.
//
// Adapters of ORMs use WrapTx, Follow, TrackConn and Visit.
//
// SQLite: open the database with a busy timeout and write-ahead logging (modernc.org/sqlite:
// "file:app.db?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_txlock=immediate"), because the relay writes beside the
// application. Behind PgBouncer in transaction mode, choose a mode of the driver without named prepared statements (pgx:
// default_query_exec_mode=exec).
package sqloutbox
