package sqloutbox_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
)

// The repository of a pool, with its tables created at start.
func ExampleNew() {
	open := func(ctx context.Context, db *sql.DB) (*sqloutbox.Repository, error) {
		repo, err := sqloutbox.New(db, sqloutbox.Config{}) // asks the database for its dialect
		if err != nil {
			return nil, err
		}
		return repo, repo.Migrate(ctx) // or repo.Check(ctx), where another tool applies the migrations
	}
	_ = open
	_, err := sqloutbox.New(nil, sqloutbox.Config{})
	fmt.Println(err)
	// Output: sqloutbox: db is nil
}

// The migrations as files for a tool of your choice.
func ExampleMigrations() {
	migrations, err := sqloutbox.Migrations(sqloutbox.Config{Dialect: core.Postgres, Schema: "app"})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, m := range migrations {
		fmt.Printf("%04d_%s.up.sql changes the table of events: %t\n", m.Version, m.Name,
			strings.Contains(m.Up, `"app"."outbox_event"`))
	}
	// Output: 0001_init.up.sql changes the table of events: true
}

func ExampleWakeChannel() {
	fmt.Println("NOTIFY " + sqloutbox.WakeChannel(""))
	// Output: NOTIFY outbox_wake
}
