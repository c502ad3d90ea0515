package entoutbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/adapter"
)

// errNotWrapped: the client that something was asked of does not use Driver, so that nobody can
// tell whether it is in a transaction.
var errNotWrapped = fmt.Errorf("%w: the Ent client does not use the driver of the outbox: make it with "+
	"ent.NewClient(ent.Driver(ob.Driver()))", core.ErrNotInstalled)

// Outbox is Ent's side of a core.Outbox. Make it with New, make the client on Driver, and run Run
// in one goroutine of each process that relays. It is safe for use by several goroutines.
type Outbox struct {
	adapter.Operations

	own    *adapter.Outbox
	driver *driver
}

// New returns the outbox of the database that drv leads to. drv is what entsql.Open or
// entsql.OpenDB returned, or a driver around one (dialect.Debug, or any with a method DB()
// *sql.DB); another dialect.Driver needs Config.Outbox. It reports a wrong configuration, an
// unsupported dialect and failed migrations. With AutoCreate it waits for the database, at most a
// minute.
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

// poolOf finds the pool behind a driver, or nil.
func poolOf(drv dialect.Driver) *sql.DB {
	switch d := drv.(type) {
	case *entsql.Driver:
		pool, _ := d.ExecQuerier.(*sql.DB) // its method DB panics when it is something else
		return pool
	case *dialect.DebugDriver:
		return poolOf(d.Driver)
	case interface{ DB() *sql.DB }:
		return d.DB()
	}
	return nil
}

// ready returns what was wrong with the functions of On and Hook.
func (o *Outbox) ready() error {
	if o == nil || o.own == nil {
		return fmt.Errorf("%w: the *Outbox was not made by entoutbox.New", core.ErrNotInstalled)
	}
	_, err := o.own.Core()
	return err
}

// Driver returns the driver that clients are made with: ent.NewClient(ent.Driver(ob.Driver())). It
// does what the driver given to New does, and hears how transactions end: of Tx and BeginTx, of
// Debug clients, with hooks on commits or without. Closing the client closes the driver that was
// given to New.
func (o *Outbox) Driver() dialect.Driver { return o.driver }
