// Package sqloutbox keeps the outbox in tables of PostgreSQL, MariaDB, MySQL 8 or SQLite.
//
// One call opens a pool whose transactions are tracked, and makes its outbox. It creates the tables
// if AutoCreate is set:
//
//	db, ob, err := sqloutbox.Open(ctx, "pgx", dsn, sqloutbox.OpenConfig{Publisher: publisher, AutoCreate: true})
//
// The same in single steps:
//
//	repo, err := sqloutbox.New(pool, sqloutbox.Config{})
//	err = repo.Migrate(ctx) // creates or upgrades the tables; or your own tool applies Migrations
//	err = repo.Check(ctx)   // at start: names the differences
//	ob, err := core.New(core.Config{Repository: repo, Publisher: publisher, Relay: relay.Config{}})
//
// The transactions for Publish come from package sqltx, or from the adapter of an ORM.
//
// SQLite: open the database with a busy timeout and write-ahead logging (modernc.org/sqlite:
// "file:app.db?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_txlock=immediate"), because
// the relay writes beside the application. Behind PgBouncer in transaction mode, choose a mode of
// the driver without named prepared statements (pgx: default_query_exec_mode=exec).
package sqloutbox
