package sqloutbox

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"log/slog"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

// OpenConfig configures Open and OpenConnector. The zero value is usable: events are inserted into
// the existing tables, and another process relays them.
type OpenConfig struct {
	// Publisher is where Run sends events. Default: this process only inserts, and another one
	// relays.
	Publisher core.Publisher
	// AutoCreate creates or migrates the tables when the outbox is made. Open then waits for
	// the database, at most a minute. For production, apply Migrations with a tool of your choice.
	// Default: the tables are there.
	AutoCreate bool
	// Routes names the topics of event types; see core.Config. Default: the aggregate type.
	Routes map[string][]string
	// Relay configures the publishing: pauses, attempts, retention, limits. Default: relay.Config's
	// defaults.
	Relay relay.Config
	// Logger gets warnings and errors for operators. Default: core.DefaultLogger, which writes
	// warnings and errors to slog.Default(). To silence it: slog.New(slog.DiscardHandler).
	Logger *slog.Logger
	// Observer is called with everything that happens, for metrics. Default: none.
	Observer *core.Observer
	// Tracer has callbacks for traces, such as those of module oteloutbox. Default: none.
	Tracer *core.Tracer
	// DeadPolicy decides what a dead event does to its key. Default: core.BlockKey.
	DeadPolicy core.DeadPolicy
	// BacklogLimit makes Publish fail with core.ErrBacklogFull while too
	// many events wait in the table. Default: no limit.
	BacklogLimit core.BacklogLimit
	// Schema and Prefix are the place of the tables; see Config. Default: the connection's schema,
	// and DefaultPrefix.
	Schema, Prefix string
	// PartitionEvery is for a table with partitions on PostgreSQL; see Config. Default: none.
	PartitionEvery time.Duration
	// Dialect of the database. Default: the dialect of the driver, as for sqltx.Connector.
	Dialect core.Dialect
	// Codec encodes Event.Data. Default: core.JSON.
	Codec core.Codec
	// Headers adds headers, such as the trace context, to every event. It must not use the
	// transaction. Default: none.
	Headers func(ctx context.Context) map[string]string
	// MaxPayload is the largest payload in bytes. Default: 1 MiB.
	MaxPayload int
	// RejectUntracked makes Publish refuse events, with core.ErrUntracked, in an untracked
	// transaction. Default: they are inserted, and the poller publishes them.
	RejectUntracked bool
	// Node is the name of this process in the table. Default: host name and process id.
	Node string
	// Wake connects relays with the commits of other processes; see core.Config. Default: the
	// tables' own way.
	Wake core.WakePolicy
	// RelayedByLog leaves publishing to a program that reads the log of the database, such as
	// Debezium; see core.Config. Default: relays of this project publish.
	RelayedByLog bool
	// DisablePrepare makes every connection execute the INSERT of Publish without a prepared
	// statement of ours; see core.Config. Default: a connection of sqltx prepares it once, if its
	// driver does not, and on PostgreSQL only without a pooler.
	DisablePrepare bool
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
// Open is short for sqltx.Open, NewWithDialect, Repository.Migrate and core.New. Only AutoCreate
// needs the database: Open waits for it until ctx ends, at most a minute. Open returns an error for a
// wrong configuration, an unknown driver, a server that is not supported, and a failed migration. It
// leaves nothing open then.
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
	ob, err := c.onPool(ctx, pool)
	if err != nil {
		return nil, nil, errors.Join(err, pool.Close())
	}
	return pool, ob, nil
}

func (c OpenConfig) onPool(ctx context.Context, pool *sql.DB) (*core.Outbox, error) {
	d := c.Dialect
	if d == "" {
		var err error
		if d, err = sqltx.DialectOf(pool); err != nil {
			return nil, err
		}
	}
	repo, err := NewWithDialect(ctx, pool, d, c.tables())
	if err != nil {
		return nil, err
	}
	return c.outbox(ctx, repo)
}

// tables returns where the tables are.
func (c OpenConfig) tables() Config {
	return Config{Schema: c.Schema, Prefix: c.Prefix, PartitionEvery: c.PartitionEvery}
}

func (c OpenConfig) outbox(ctx context.Context, repo *Repository) (*core.Outbox, error) {
	ob, err := core.New(c.core(repo))
	if err != nil || !c.AutoCreate {
		return ob, err
	}
	ctx, cancel := context.WithTimeout(ctx, migrateTimeout)
	defer cancel()
	return ob, repo.Migrate(ctx)
}

// core returns the settings for core.New.
func (c OpenConfig) core(repo core.Repository) core.Config {
	return core.Config{
		Repository: repo, Publisher: c.Publisher, Relay: c.Relay, Routes: c.Routes, Logger: c.Logger,
		Observer: c.Observer, Tracer: c.Tracer, DeadPolicy: c.DeadPolicy, BacklogLimit: c.BacklogLimit,
		Codec: c.Codec, Headers: c.Headers, MaxPayload: c.MaxPayload, RejectUntracked: c.RejectUntracked,
		Node: c.Node, Wake: c.Wake, RelayedByLog: c.RelayedByLog, DisablePrepare: c.DisablePrepare,
	}
}
