package sqloutbox

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"log/slog"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

// OpenConfig configures Open and OpenConnector. The zero value is usable: events are inserted into
// the existing tables, and another process relays them.
type OpenConfig struct {
	// Publisher is where Run of the outbox sends events. Nil: this process only inserts.
	Publisher core.Publisher
	// Routes names the topics of event types; see core.Config.
	Routes map[string][]string
	// Headers adds headers, such as the trace context, to every event.
	Headers func(ctx context.Context) map[string]string
	// Logger of the outbox; see core.Config.
	Logger *slog.Logger
	// Observer is called with everything that happens, for metrics. Default: none.
	Observer *core.Observer
	// Configure may set any other field of core.Config, such as Retention or Workers. It is called
	// just before the outbox is made, with the fields above and Repository set.
	Configure func(*core.Config)

	// AutoCreate creates or migrates the tables. For production, apply the SQL of Migrations with a
	// tool of your choice.
	AutoCreate bool
	// Schema and Prefix say where the tables are; see Config. Default: the connection's schema,
	// DefaultPrefix.
	Schema, Prefix string
	// Dialect of the database. Empty: the driver tells it, as for sqltx.Connector.
	Dialect core.Dialect
}

// Open opens a pool with the named driver, as sql.Open does, and makes the outbox of its database.
// Every transaction of the pool is tracked, whichever library begins it: database/sql, sqlx, sqlc.
// sqltx.TxOf makes the argument of Publish from a *sql.Tx. sqltx.NewTransactor puts transactions
// into the context.
//
//	db, ob, err := sqloutbox.Open(ctx, "pgx", dsn, sqloutbox.OpenConfig{Publisher: publisher, AutoCreate: true})
//	if err != nil { ... }
//	defer db.Close()
//	go ob.Run(ctx)
//
// Open is short for sqltx.Open, New, Repository.Migrate and core.New. Only AutoCreate needs the
// database: Open waits for it until ctx ends, at most a minute. Open returns an error for a wrong
// configuration, an unknown driver, and a failed migration. It leaves nothing open then.
func Open(ctx context.Context, driverName, dsn string, cfg OpenConfig) (*sql.DB, *core.Outbox, error) {
	pool, err := sqltx.Open(driverName, dsn, cfg.Dialect)
	if err != nil {
		return nil, nil, err
	}
	return cfg.open(ctx, pool)
}

// OpenConnector is Open for a driver that is configured by code: stdlib.GetConnector of pgx,
// mysql.NewConnector, pgdriver.NewConnector.
func OpenConnector(ctx context.Context, c driver.Connector, cfg OpenConfig) (*sql.DB, *core.Outbox, error) {
	pool, err := sqltx.OpenDB(c, cfg.Dialect)
	if err != nil {
		return nil, nil, err
	}
	return cfg.open(ctx, pool)
}

const migrateTimeout = time.Minute

// open makes the outbox of a pool opened with sqltx. If that fails, it closes the pool.
func (c OpenConfig) open(ctx context.Context, pool *sql.DB) (*sql.DB, *core.Outbox, error) {
	ob, err := c.outbox(ctx, pool)
	if err != nil {
		return nil, nil, errors.Join(err, pool.Close())
	}
	return pool, ob, nil
}

func (c OpenConfig) outbox(ctx context.Context, pool *sql.DB) (*core.Outbox, error) {
	d := c.Dialect
	if d == "" {
		var err error
		if d, err = sqltx.DialectOf(pool); err != nil {
			return nil, err
		}
	}
	repo, err := New(pool, Config{Dialect: d, Schema: c.Schema, Prefix: c.Prefix})
	if err != nil {
		return nil, err
	}
	cfg := core.Config{
		Repository: repo, Publisher: c.Publisher, Routes: c.Routes, Headers: c.Headers, Logger: c.Logger,
		Observer: c.Observer,
	}
	if c.Configure != nil {
		c.Configure(&cfg)
	}
	ob, err := core.New(cfg)
	if err != nil || !c.AutoCreate {
		return ob, err
	}
	ctx, cancel := context.WithTimeout(ctx, migrateTimeout)
	defer cancel()
	return ob, repo.Migrate(ctx)
}
