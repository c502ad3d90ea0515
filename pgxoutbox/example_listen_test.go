package pgxoutbox_test

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/pgxoutbox"
)

// A relay in a process of its own hears of the commits of the services. The services need no
// setting.
func ExampleListen() {
	relay := func(ctx context.Context, dsn string, publisher core.Publisher) error {
		cfg, err := pgx.ParseConfig(dsn)
		if err != nil {
			return err
		}
		pool := sql.OpenDB(stdlib.GetConnector(*cfg))
		defer pool.Close()
		table, err := sqloutbox.New(pool, sqloutbox.Config{Dialect: core.Postgres})
		if err != nil {
			return err
		}
		ob, err := core.New(core.Config{
			Repository: table, Publisher: publisher, Relay: relay.Config{},
			Wake: core.WakePolicy{Listen: pgxoutbox.Listen(cfg, sqloutbox.WakeChannel(""))},
		})
		if err != nil {
			return err
		}
		return ob.Run(ctx)
	}
	_ = relay
}
