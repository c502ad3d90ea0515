// Package sqlcommand keeps the effects of package command in PostgreSQL, MariaDB, MySQL 8 or SQLite.
//
//	store, err := sqlcommand.New(pool, sqlcommand.Config{})
//	err = store.Migrate(ctx) // or apply what Migrations returns with your own tool
//	err = store.Check(ctx)   // at start: name what differs
//	queue, err := command.NewQueue(command.QueueConfig{Store: store, Outbox: outbox})
package sqlcommand
