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
	"github.com/ormoutbox/ormoutbox/core/adapter"
	"github.com/ormoutbox/ormoutbox/core/adapter/capture"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

// Outbox connects Bun to a core.Outbox. Make it with New, and work with the *bun.DB that DB
// returns. Call Run in one goroutine of each process that relays. It is safe for use by several
// goroutines.
type Outbox struct {
	// Run, Drain and the calls of operators are the same for every ORM.
	adapter.Operations

	own    *adapter.Outbox
	server capture.Server
	db     *bun.DB // with the hook
	hook   *hook
}

// New makes an Outbox on the database of db. It reports a wrong configuration, an unsupported
// database and failed migrations. RunInTx works on db with the query hooks that db has now.
func New(db *bun.DB, cfg Config) (*Outbox, error) { return newOutbox(context.Background(), db, cfg) }

func newOutbox(ctx context.Context, db *bun.DB, cfg Config) (*Outbox, error) {
	d, err := dialectOf(db)
	if err != nil {
		return nil, err
	}
	own := adapter.New(cfg, "make the outbox with bunoutbox.New")
	if err := own.Open(ctx, d, func() (*sql.DB, error) { return db.DB, nil }); err != nil {
		return nil, err
	}
	o := &Outbox{Operations: own.Operations(), own: own}
	o.hook = &hook{ob: o}
	o.db = db.WithQueryHook(o.hook)
	return o, nil
}

func dialectOf(db *bun.DB) (core.Dialect, error) {
	if db == nil || db.DB == nil {
		return "", errors.New("outbox: the *bun.DB is nil")
	}
	return dialectNamed(db.Dialect())
}

// DB returns the *bun.DB to work with: the one given to New, with the hook that captures the events
// of models. A *bun.DB without the hook writes rows and no events.
func (o *Outbox) DB() *bun.DB { return o.db }

// Hook returns the hook that captures the events of models, for a *bun.DB other than DB's. Note
// that db.WithQueryHook(ob.Hook()) does not change db: it returns a new *bun.DB that captures. Hook
// always returns the same hook. A *bun.DB that has the hook twice captures once.
func (o *Outbox) Hook() bun.QueryHook { return o.hook }

// ready returns the mistakes of the On functions.
func (o *Outbox) ready() error {
	if o == nil || o.own == nil {
		return fmt.Errorf("%w: the *Outbox was not made by bunoutbox.New", core.ErrNotInstalled)
	}
	_, err := o.own.Core()
	return err
}

// Config configures the outbox. It has every setting of core.Config except the Repository. It also
// has the place of the tables (AutoCreate, Schema, Prefix), and can name an existing outbox to
// share (Outbox). Package core/adapter lists the fields, the same for every ORM. The zero value is
// usable: events are inserted into the existing tables, and another process relays them. New and
// Open report mistakes.
type Config = adapter.Config

// Open opens a pool with the driver of that name, as sql.Open does, and makes a *bun.DB and the
// outbox of its database. The *bun.DB captures the events of models. Every transaction of its pool
// is tracked, even if another library begins it.
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
