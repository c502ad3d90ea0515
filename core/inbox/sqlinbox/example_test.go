package sqlinbox_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox/sqlinbox"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
)

// The service creates the tables at its start.
func ExampleNew() {
	open := func(ctx context.Context, db *sql.DB) (*sqlinbox.Store, error) {
		store, err := sqlinbox.New(db, sqlinbox.Config{}) // asks the database for its dialect
		if err != nil {
			return nil, err
		}
		return store, store.Migrate(ctx) // or store.Check(ctx), if another tool applies the migrations
	}
	_ = open
	_, err := sqlinbox.New(nil, sqlinbox.Config{})
	fmt.Println(err)
	// Output: sqlinbox: db is nil
}

// The migrations can be written to files for a tool of your choice.
func ExampleMigrations() {
	migrations, err := sqlinbox.Migrations(sqlinbox.Config{Dialect: core.Postgres, Schema: "app"})
	if err != nil {
		fmt.Println(err)
		return
	}
	first := migrations[0]
	fmt.Printf("%04d_%s.up.sql has the table: %t\n", first.Version, first.Name,
		strings.Contains(first.Up, `"app"."inbox_seen"`))
	// Output: 0001_init.up.sql has the table: true
}

// A program that has the Transactor of its ORM, and no pool, makes the store with it.
func ExampleOn() {
	tx := outboxtest.NewRepository().Transactor() // in a program: entoutbox.Transactor(client.Tx)
	store, err := sqlinbox.On(tx, sqlinbox.Config{Dialect: core.Postgres})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(store.Dialect())
	// Output: postgres
}
