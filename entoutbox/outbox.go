package entoutbox

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"sync"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/adapter"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

// errNotWrapped: a client does not use Driver, so the outbox cannot detect whether the client is in
// a transaction.
var errNotWrapped = fmt.Errorf("%w: the Ent client does not use the driver of the outbox: make it with "+
	"ent.NewClient(ent.Driver(ob.Driver()))", core.ErrNotInstalled)

// Outbox connects Ent to a core.Outbox. Make it with New, make the client on Driver, and call Run
// in one goroutine of each process that relays. It is safe for use by several goroutines.
type Outbox struct {
	// Run, Drain and the calls of operators are the same for every ORM.
	adapter.Operations

	own     *adapter.Outbox
	driver  *driver
	clients sync.Map // the driver's clients, by identity
}

// New returns the outbox of the database of drv. drv is the result of entsql.Open or entsql.OpenDB,
// or a driver around one (dialect.Debug, or any with a method DB() *sql.DB). Another dialect.Driver
// needs Config.Outbox. New reports a wrong configuration, an unsupported dialect and failed
// migrations. With AutoCreate it waits for the database, at most a minute.
func New(drv dialect.Driver, cfg Config) (*Outbox, error) {
	return newOutbox(context.Background(), drv, cfg)
}

func newOutbox(ctx context.Context, drv dialect.Driver, cfg Config) (*Outbox, error) {
	if drv == nil {
		return nil, errors.New("outbox: New was given a nil driver")
	}
	d, err := wrap(drv)
	if err != nil {
		return nil, err
	}
	own := adapter.New(cfg, "make the outbox with entoutbox.New")
	if err := own.Open(ctx, d.dialect, func() (*sql.DB, error) {
		if pool := d.DB(); pool != nil {
			return pool, nil
		}
		return nil, fmt.Errorf("outbox: the driver %T has no *sql.DB: give New the driver below it, or set "+
			"Config.Outbox", d.Driver)
	}); err != nil {
		return nil, err
	}
	return &Outbox{Operations: own.Operations(), own: own, driver: d}, nil
}

// poolOf returns the pool of a driver, or nil.
func poolOf(drv dialect.Driver) *sql.DB {
	switch d := drv.(type) {
	case *entsql.Driver:
		pool, _ := d.ExecQuerier.(*sql.DB) // the method DB would panic for another type
		return pool
	case *dialect.DebugDriver:
		return poolOf(d.Driver)
	case interface{ DB() *sql.DB }:
		return d.DB()
	}
	return nil
}

// ready returns the mistakes of the functions of On and Hook.
func (o *Outbox) ready() error {
	if o == nil || o.own == nil {
		return fmt.Errorf("%w: the *Outbox was not made by entoutbox.New", core.ErrNotInstalled)
	}
	_, err := o.own.Core()
	return err
}

// Driver returns the driver for clients: ent.NewClient(ent.Driver(ob.Driver())). It works as the
// driver given to New, and tracks every transaction: of Tx, BeginTx and Debug clients, with or
// without commit hooks. Closing the client closes the driver that was given to New.
func (o *Outbox) Driver() dialect.Driver { return o.driver }

// Config configures the outbox. It has every setting of core.Config except the Repository. It also
// has the place of the tables (AutoCreate, Schema, Prefix), and can name an existing outbox to
// share (Outbox). Package core/adapter lists the fields, the same for every ORM. The zero value is
// usable: events are inserted into the existing tables, and another process relays them. New and
// Open report mistakes. Ent's migration can create the tables too, without AutoCreate: see package
// entschema.
type Config = adapter.Config

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

// dialects maps Ent's names of dialects.
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
