package entoutbox

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

// Open opens a pool with the driver of that name, as sql.Open does. It makes the outbox of its
// database, and the Ent driver for clients. The dialect follows from the driver.
//
//	drv, ob, err := entoutbox.Open(ctx, "pgx", dsn, entoutbox.Config{Publisher: publisher, AutoCreate: true})
//	if err != nil { ... }
//	client := ent.NewClient(ent.Driver(drv))
//	defer client.Close() // closes the pool too
//	client.Use(ob.Hook(entoutbox.OnMutation(...)))
//	go ob.Run(ctx)
//
// It is short for sqltx.Open, entsql.OpenDB, New and Outbox.Driver. Only AutoCreate needs a
// connection to the database: Open waits for it until ctx ends, at most a minute. Open returns an
// error for a wrong configuration, an unknown driver, and a failed migration. After an error it
// leaves nothing open. On SQLite the DSN must switch foreign keys on, as Ent requires it.
func Open(ctx context.Context, driverName, dsn string, cfg Config) (dialect.Driver, *Outbox, error) {
	pool, err := sqltx.Open(driverName, dsn, "")
	if err != nil {
		return nil, nil, err
	}
	return open(ctx, pool, cfg)
}

// OpenConnector is Open for a driver that is configured by code: stdlib.GetConnector of pgx,
// mysql.NewConnector.
func OpenConnector(ctx context.Context, c sqldriver.Connector, cfg Config) (dialect.Driver, *Outbox, error) {
	if c == nil {
		return nil, nil, errors.New("outbox: OpenConnector was given a nil connector")
	}
	return open(ctx, sql.OpenDB(sqltx.Connector(c, "")), cfg)
}

func open(ctx context.Context, pool *sql.DB, cfg Config) (_ dialect.Driver, ob *Outbox, err error) {
	d, err := sqltx.DialectOf(pool)
	if err == nil {
		ob, err = newOutbox(ctx, entsql.OpenDB(nameOf(d), pool), cfg)
	}
	if err != nil {
		return nil, nil, errors.Join(err, pool.Close())
	}
	return ob.Driver(), ob, nil
}

// dialects are those of Ent by their names.
var dialects = map[string]core.Dialect{
	dialect.Postgres: core.Postgres, dialect.MySQL: core.MySQL, dialect.SQLite: core.SQLite,
}

func nameOf(d core.Dialect) string {
	for name, known := range dialects {
		if known == d {
			return name
		}
	}
	return string(d)
}
