// Package sqlinbox keeps the inbox of package core/inbox in PostgreSQL, MariaDB, MySQL 8 or SQLite.
//
//	store, err := sqlinbox.New(pool, sqlinbox.Config{})
//	err = store.Migrate(ctx) // or apply what Migrations returns with your own tool
//	err = store.Check(ctx)   // at start: name what differs
//
// Begin, BeginBatch and Advance join any core.Tx of the same database: of package sqltx or of the
// adapter of an ORM.
package sqlinbox
