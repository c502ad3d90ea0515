// Package sqlonce keeps the keys of package once in PostgreSQL, MariaDB, MySQL 8 or SQLite.
//
//	store, err := sqlonce.New(pool, sqlonce.Config{})
//	err = store.Migrate(ctx) // or your own tool applies Migrations
//	err = store.Check(ctx)   // at start: names the differences
//	runner, err := once.New(once.Config{Store: store})
//
// The transaction form takes any core.Tx of the same database: of package sqltx or of the adapter
// of an ORM. A duplicate may have to wait for the first transaction. At READ COMMITTED, and at the
// REPEATABLE READ of MySQL and MariaDB, it then sees the committed key. At REPEATABLE READ and
// SERIALIZABLE of PostgreSQL it gets a serialization failure, and its transaction is run again.
package sqlonce
