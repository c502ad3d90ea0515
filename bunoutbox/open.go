package bunoutbox

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"
	"github.com/uptrace/bun/schema"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

// Open opens a pool with the driver of that name, as sql.Open does, and makes a *bun.DB and the
// outbox of its database. The *bun.DB captures the events of models. Every transaction of its pool
// is tracked, also one that another library begins.
//
//	db, ob, err := bunoutbox.Open(ctx, "pgx", dsn, pgdialect.New(),
//		bunoutbox.Config{Publisher: publisher, AutoCreate: true})
//	if err != nil { ... }
//	defer db.Close()
//	go ob.Run(ctx)
//
// It is short for sqltx.Open, bun.NewDB, New and Outbox.DB. AutoCreate needs a connection to the
// database, and so does mysqldialect, which asks for the version of the server. Open waits for the
// database until ctx ends, at most a minute. It returns an error for a wrong configuration, an
// unsupported dialect and a failed migration. After an error it leaves nothing open.
func Open(ctx context.Context, driverName, dsn string, d schema.Dialect, cfg Config,
	options ...bun.DBOption,
) (*bun.DB, *Outbox, error) {
	own, err := dialectNamed(d)
	if err != nil {
		return nil, nil, err
	}
	pool, err := sqltx.Open(driverName, dsn, own)
	if err != nil {
		return nil, nil, err
	}
	return open(ctx, pool, d, cfg, options)
}

// OpenConnector is Open for a driver that is configured by code: pgdriver.NewConnector,
// stdlib.GetConnector of pgx, mysql.NewConnector.
func OpenConnector(ctx context.Context, c driver.Connector, d schema.Dialect, cfg Config,
	options ...bun.DBOption,
) (*bun.DB, *Outbox, error) {
	own, err := dialectNamed(d)
	if err != nil {
		return nil, nil, err
	}
	if c == nil {
		return nil, nil, errors.New("outbox: OpenConnector was given a nil connector")
	}
	return open(ctx, sql.OpenDB(sqltx.Connector(c, own)), d, cfg, options)
}

const openTimeout = time.Minute

func open(ctx context.Context, pool *sql.DB, d schema.Dialect, cfg Config,
	options []bun.DBOption,
) (*bun.DB, *Outbox, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	if err := cfg.Validate(); err != nil {
		return nil, nil, errors.Join(err, pool.Close())
	}
	if cfg.AutoCreate || d.Name() == dialect.MySQL { // else Bun would take MariaDB for a MySQL of unknown age
		if err := pool.PingContext(ctx); err != nil {
			return nil, nil, errors.Join(fmt.Errorf("outbox: open the pool: %w", err), pool.Close())
		}
	}
	ob, err := newOutbox(ctx, bun.NewDB(pool, d, options...), cfg)
	if err != nil {
		return nil, nil, errors.Join(err, pool.Close())
	}
	return ob.DB(), ob, nil
}

// dialectNamed returns the core.Dialect of Bun's dialect.
func dialectNamed(d schema.Dialect) (core.Dialect, error) {
	if d == nil {
		return "", errors.New("outbox: the dialect of Bun is nil: give pgdialect.New(), mysqldialect.New() or " +
			"sqlitedialect.New()")
	}
	switch name := d.Name(); name {
	case dialect.PG:
		return core.Postgres, nil
	case dialect.MySQL:
		return core.MySQL, nil
	case dialect.SQLite:
		return core.SQLite, nil
	default:
		return "", fmt.Errorf("outbox: Bun dialect %q is not supported: use pgdialect, mysqldialect or sqlitedialect",
			name)
	}
}
