package sqlonce_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/once/sqlonce"
)

// The service creates the tables at start, and makes a runner with the store of a pool.
func ExampleNew() {
	open := func(ctx context.Context, db *sql.DB) (*once.Runner, error) {
		store, err := sqlonce.New(db, sqlonce.Config{}) // asks the database for its dialect
		if err != nil {
			return nil, err
		}
		if err := store.Migrate(ctx); err != nil { // or store.Check(ctx), if another tool applies the migrations
			return nil, err
		}
		return once.New(once.Config{Store: store})
	}
	_ = open
	_, err := sqlonce.New(nil, sqlonce.Config{})
	fmt.Println(err)
	// Output: sqlonce: db is nil
}

// The migrations can be written to files for a tool of your choice.
func ExampleMigrations() {
	migrations, err := sqlonce.Migrations(sqlonce.Config{Dialect: core.Postgres, Schema: "app"})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, m := range migrations {
		fmt.Printf("%04d_%s.up.sql creates the tables: %t\n", m.Version, m.Name,
			strings.Contains(m.Up, `CREATE TABLE IF NOT EXISTS "app"."idempotency_`))
	}
	// Output:
	// 0001_init.up.sql creates the tables: true
}
