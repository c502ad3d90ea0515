package sqlcommand_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/once/command/sqlcommand"
)

// The service creates the tables at its start.
func ExampleNew() {
	open := func(ctx context.Context, db *sql.DB) (*sqlcommand.Store, error) {
		store, err := sqlcommand.New(db, sqlcommand.Config{}) // asks the database for its dialect
		if err != nil {
			return nil, err
		}
		return store, store.Migrate(ctx) // or store.Check(ctx), if another tool applies the migrations
	}
	_ = open
	_, err := sqlcommand.New(nil, sqlcommand.Config{})
	fmt.Println(err)
	// Output: sqlcommand: db is nil
}

// The migrations can be written to files for a tool of your choice.
func ExampleMigrations() {
	migrations, err := sqlcommand.Migrations(sqlcommand.Config{Dialect: core.Postgres, Schema: "app"})
	if err != nil {
		fmt.Println(err)
		return
	}
	first := migrations[0]
	fmt.Printf("%04d_%s.up.sql has the table: %t\n", first.Version, first.Name,
		strings.Contains(first.Up, `"app"."side_effect_command"`))
	// Output: 0001_init.up.sql has the table: true
}
