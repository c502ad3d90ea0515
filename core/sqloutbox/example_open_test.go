package sqloutbox_test

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

func init() { sql.Register("example", silentDriver{}) }

// Open makes the pool, the outbox and, where asked to, the tables. Here a driver of the test stands
// in for pgx.
func ExampleOpen() {
	ctx := context.Background()
	db, ob, err := sqloutbox.Open(ctx, "example", "postgres://...", sqloutbox.OpenConfig{
		Dialect: core.Postgres, // can be left out: the common drivers tell it
		Routes:  map[string][]string{"order.placed": {"orders"}},
	})
	if err != nil {
		panic(err)
	}
	defer db.Close()

	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		panic(err)
	}
	defer tx.Rollback()
	otx, err := sqltx.TxOf(ctx, tx) // what ob.Publish takes
	if err != nil {
		panic(err)
	}
	fmt.Println(ob.Repository() != nil, otx.Tracked(), tx.Commit())
	// Output: true true <nil>
}

// A driver that is configured by code is given as its connector.
func ExampleOpenConnector() {
	var connector silentDriver // stdlib.GetConnector(config), mysql.NewConnector(config)
	db, ob, err := sqloutbox.OpenConnector(context.Background(), connector, sqloutbox.OpenConfig{
		Dialect: core.Postgres, Relay: relay.Config{Workers: 64, Retention: relay.Retention{DeleteOnSuccess: true}},
	})
	if err != nil {
		panic(err)
	}
	defer db.Close()
	fmt.Println(ob.Repository() != nil)
	// Output: true
}
