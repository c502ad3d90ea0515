package entoutbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/adapter"
)

// errNotWrapped: a client does not use Driver, so the outbox cannot know whether the client is in a
// transaction.
var errNotWrapped = fmt.Errorf("%w: the Ent client does not use the driver of the outbox: make it with "+
	"ent.NewClient(ent.Driver(ob.Driver()))", core.ErrNotInstalled)

// Outbox connects Ent to a core.Outbox. Make it with New, make the client on Driver, and call Run
// in one goroutine of each process that relays. It is safe for use by several goroutines.
type Outbox struct {
	// Run, Drain and what operators do are the same for every ORM.
	adapter.Operations

	own     *adapter.Outbox
	driver  *driver
	clients sync.Map // those that the driver knows, by identity
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

// Driver returns the driver for clients: ent.NewClient(ent.Driver(ob.Driver())). It does the same
// as the driver given to New, and is told how transactions end: those of Tx and BeginTx, and of
// Debug clients, with or without hooks on commits. Closing the client closes the driver that was
// given to New.
func (o *Outbox) Driver() dialect.Driver { return o.driver }
