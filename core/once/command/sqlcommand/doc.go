// Package sqlcommand keeps the effects of package command in PostgreSQL, MariaDB, MySQL 8 or
// SQLite.
//
//	store, err := sqlcommand.New(pool, sqlcommand.Config{})
//	err = store.Migrate(ctx) // or your own tool applies Migrations
//	err = store.Check(ctx)   // at start: names the differences
//	queue, err := command.NewQueue(command.QueueConfig{Store: store, Outbox: outbox})
package sqlcommand
