package pgxoutbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
)

// OpenConfig configures New, Open and OpenPool. It is the same as for sqloutbox.Open. The zero
// value is usable: events are inserted into the existing tables, and another process relays them.
// Dialect may stay empty.
type OpenConfig = sqloutbox.OpenConfig

// New makes the outbox of a pool. Its relay learns of the events of other processes by Listen,
// unless cfg.Wake is set otherwise. New returns an error for a wrong configuration and a failed
// migration. AutoCreate needs the database: New then waits for it, at most a minute.
func New(pool *Pool, cfg OpenConfig) (*core.Outbox, error) {
	return newOutbox(context.Background(), pool, cfg)
}

func newOutbox(ctx context.Context, pool *Pool, cfg OpenConfig) (*core.Outbox, error) {
	if err := pool.check(); err != nil {
		return nil, err
	}
	if cfg.Wake.Listen == nil {
		cfg.Wake.Listen = listenOn(pool.Config(), cfg.Prefix)
	}
	return sqloutbox.OpenWithPool(ctx, access{pool.Pool}, cfg)
}

// listenOn is Listen with the connections that a pool makes.
func listenOn(config *pgxpool.Config, prefix string) func(ctx context.Context, wake func()) error {
	return func(ctx context.Context, wake func()) error {
		conn := config.ConnConfig.Copy()
		if config.BeforeConnect != nil { // a password that changes, for example
			if err := config.BeforeConnect(ctx, conn); err != nil {
				return fmt.Errorf("pgxoutbox: listen: %w", err)
			}
		}
		return Listen(conn, sqloutbox.WakeChannel(prefix))(ctx, wake)
	}
}

// Open opens a pool as pgxpool.New does, and makes the outbox of its database.
//
//	pool, ob, err := pgxoutbox.Open(ctx, dsn, pgxoutbox.OpenConfig{Publisher: publisher, AutoCreate: true})
//	if err != nil { ... }
//	defer pool.Close()
//	go ob.Run(ctx)
//
// It is short for pgxpool.New, NewPool and New. Only AutoCreate needs the database: Open waits for
// it until ctx ends, at most a minute. After an error it leaves nothing open.
func Open(ctx context.Context, dsn string, cfg OpenConfig) (*Pool, *core.Outbox, error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, nil, fmt.Errorf("pgxoutbox: %w", err)
	}
	return OpenPool(ctx, config, cfg)
}

// OpenPool is Open for a pool that is configured by code, as pgxpool.NewWithConfig opens it. config
// must come from pgxpool.ParseConfig. BEGIN goes with the first statement; see DeferBegin. A
// connection is closed when its server refuses writes, also in a transaction that was begun as a
// read-only one.
func OpenPool(ctx context.Context, config *pgxpool.Config, cfg OpenConfig) (*Pool, *core.Outbox, error) {
	if config == nil {
		return nil, nil, errors.New("pgxoutbox: OpenPool was given a nil *pgxpool.Config")
	}
	config = config.Copy()
	DeferBegin(config)
	next := config.ConnConfig.OnPgError
	config.ConnConfig.OnPgError = func(conn *pgconn.PgConn, err *pgconn.PgError) bool {
		// After a failover the address may lead to another server: this connection is closed.
		return err.Code != readOnlyServer && (next == nil || next(conn, err))
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, nil, fmt.Errorf("pgxoutbox: open the pool: %w", err)
	}
	own := NewPool(pool)
	ob, err := newOutbox(ctx, own, cfg)
	if err != nil {
		pool.Close()
		return nil, nil, err
	}
	return own, ob, nil
}

// readOnlyServer is the error code of a server that takes no writes.
const readOnlyServer = "25006"

// NewRepository returns the tables of an outbox in the database of pool, as sqloutbox.New does for
// a *sql.DB. The relay then works on pool too. A claim or a mark is one round trip, in the binary
// format. NewRepository sends no statement. The pool of a Pool works as well: give its field Pool.
func NewRepository(pool *pgxpool.Pool, cfg sqloutbox.Config) (*sqloutbox.Repository, error) {
	if pool == nil {
		return nil, errNilPool
	}
	return sqloutbox.NewWithPool(access{pool}, cfg)
}

var errNilPool = errors.New("pgxoutbox: the *pgxpool.Pool is nil")

const (
	connectTimeout = 10 * time.Second
	closeTimeout   = time.Second
)

// Listen returns a function for core.WakePolicy.Listen: a relay in a process of its own learns of a
// commit within a millisecond, and not at its next poll. It LISTENs on the channel, on a connection
// of its own, which is idle otherwise. sqloutbox.WakeChannel names the channel on which processes
// without a relay notify.
//
// cfg comes from pgx.ParseConfig. It may be the pool's, unless PgBouncer is in between in
// transaction mode, which loses LISTEN. Give Listen the address of PostgreSQL itself then; the
// services may go on to notify through PgBouncer. Listen uses a copy of cfg.
func Listen(cfg *pgx.ConnConfig, channel string) func(ctx context.Context, wake func()) error {
	if cfg != nil {
		cfg = cfg.Copy()
	}
	return func(ctx context.Context, wake func()) error {
		if cfg == nil {
			return errors.New("pgxoutbox: the *pgx.ConnConfig given to Listen is nil")
		}
		conn, err := connect(ctx, cfg)
		if err != nil {
			return err
		}
		defer func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
			defer cancel()
			_ = conn.Close(ctx)
		}()
		// a text without parameters: it is never prepared
		if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{channel}.Sanitize()); err != nil {
			return err
		}
		for { // the first wake means that it listens
			wake()
			if _, err := conn.WaitForNotification(ctx); err != nil {
				return err
			}
		}
	}
}

func connect(ctx context.Context, cfg *pgx.ConnConfig) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	return pgx.ConnectConfig(ctx, cfg)
}
