package sqloutbox

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"log/slog"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/settings"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

// OpenConfig configures Open and OpenConnector. The zero value is usable: events are inserted into
// the existing tables, and another process relays them.
type OpenConfig struct {
	// AutoCreate creates or migrates the tables. For production, apply what Migrations returns with
	// a tool of your choice.
	AutoCreate bool
	// Schema and Prefix say where the tables are; see Config. Default: the connection's schema,
	// DefaultPrefix.
	Schema, Prefix string
	// PartitionEvery is for a table with partitions on PostgreSQL; see Config.
	PartitionEvery time.Duration
	// Dialect of the database. Empty: the driver tells it, as for sqltx.Connector.
	Dialect core.Dialect

	// Publisher is where Run of the outbox sends events. Nil: this process only inserts.
	Publisher core.Publisher
	// RelayedByLog leaves publishing to a program that reads the log of the database, such as
	// Debezium; see core.Config. Default: relays of this project publish.
	RelayedByLog bool
	// Routes names the topics of event types; see core.Config.
	Routes map[string][]string
	// Codec encodes Event.Data. Default: core.JSON.
	Codec core.Codec
	// Headers adds headers, such as the trace context, to every event. It must not use the
	// transaction.
	Headers func(ctx context.Context) map[string]string
	// MaxPayload is the largest payload in bytes. Default: 1 MiB.
	MaxPayload int
	// RejectUntracked refuses events, with core.ErrUntracked, in an untracked transaction. Default:
	// they are inserted, and the poller publishes them.
	RejectUntracked bool
	// DisablePrepare makes every connection execute the INSERT of Publish without a prepared
	// statement of ours; see core.Config. Default: a connection prepares it once, if its driver
	// does not, and on PostgreSQL only without a pooler.
	DisablePrepare bool
	// BacklogLimit makes Publish refuse events with core.ErrBacklogFull while too many wait in the
	// table. Default: no limit.
	BacklogLimit core.BacklogLimit

	// Node is the name of this process in the table. It and the fields below are described in
	// core.Config, with their defaults.
	Node            string
	Workers         int                         // events that are published at once
	InFlight        int                         // events that an AsyncPublisher has not answered
	InFlightBytes   int64                       // bytes of these
	PublishTimeout  time.Duration               // ends a publish
	HotEvents       int                         // bounds the fast path
	HotBytes        int64                       // bounds the fast path
	ColdEvents      int                         // bounds the events that the poller holds
	ColdBytes       int64                       // bounds the events that the poller holds
	HotLease        time.Duration               // lease of the process that wrote the row
	ClaimLease      time.Duration               // lease of the process that polled the row
	LeaseMargin     time.Duration               // between a publish and the end of its lease
	MaxLease        time.Duration               // the longest possible lease
	PollInterval    time.Duration               // pause between polls
	MaxPollInterval time.Duration               // the longest pause
	Wake            core.WakePolicy             // how relays hear of other processes
	ClaimBatch      int                         // rows that one claim takes
	KeyRun          int                         // rows of one key that one claim takes
	MarkBatch       int                         // marks that one statement writes
	MarkDelay       time.Duration               // longest wait before marks are written
	MaxUnmarked     int                         // most marks that wait to be written
	Retry           core.RetryPolicy            // attempts and pauses of refused events
	RetryByType     map[string]core.RetryPolicy // attempts and pauses of single event types
	Breaker         core.BreakerPolicy          // pauses of destinations that fail
	MaxCrashes      int                         // processes that may die during publishes of one event
	DeadPolicy      core.DeadPolicy             // what a dead event means for its key
	Classifier      func(error) core.Class      // judges unmarked publish errors
	Retention       core.Retention              // how long published rows are kept
	DisableJanitor  bool                        // leave the cleanup to other processes
	ShutdownTimeout time.Duration               // longest time for Run to return after its context has ended

	// Logger gets what an operator should look at. Default: core.DefaultLogger, which writes
	// warnings and errors to slog.Default(). To silence it: slog.New(slog.DiscardHandler).
	Logger *slog.Logger
	// Observer is called with everything that happens, for metrics. Default: none.
	Observer *core.Observer
	// Tracer has callbacks for traces, those of module oteloutbox for example. Default: none.
	Tracer *core.Tracer
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
	repo, err := New(pool, c.tables(d))
	if err != nil {
		return nil, err
	}
	return c.outbox(ctx, repo)
}

// tables returns where the tables are.
func (c OpenConfig) tables(d core.Dialect) Config {
	return Config{Dialect: d, Schema: c.Schema, Prefix: c.Prefix, PartitionEvery: c.PartitionEvery}
}

func (c OpenConfig) outbox(ctx context.Context, repo *Repository) (*core.Outbox, error) {
	cfg := core.Config{Repository: repo}
	settings.Copy(&cfg, c)
	ob, err := core.New(cfg)
	if err != nil || !c.AutoCreate {
		return ob, err
	}
	ctx, cancel := context.WithTimeout(ctx, migrateTimeout)
	defer cancel()
	return ob, repo.Migrate(ctx)
}
