package entoutbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
)

// ErrNotWrapped: the client that something was asked of does not use Driver, so that nobody can
// tell whether it is in a transaction, or it uses the Driver of an outbox in another database. Make
// it with ent.NewClient(ent.Driver(ob.Driver())).
var ErrNotWrapped = errors.New("outbox: the Ent client does not use the driver of the outbox: make it with " +
	"ent.NewClient(ent.Driver(ob.Driver()))")

// Outbox is Ent's side of a core.Outbox. Make it with New, make the client on Driver, and run Run
// in one goroutine of each process that relays. It is safe for use by several goroutines.
type Outbox struct {
	cfg    Config
	core   *core.Outbox
	driver *driver
	warned sync.Map // mutation types whose keyless mutations were logged

	mu       sync.Mutex
	mistakes error // of Hook
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
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Logger == nil {
		cfg.Logger = core.DefaultLogger()
	}
	d, err := wrap(drv)
	if err != nil {
		return nil, err
	}
	o := &Outbox{cfg: cfg, core: cfg.Outbox, driver: d}
	if o.core == nil {
		if o.core, err = cfg.build(ctx, d); err != nil {
			return nil, err
		}
	} else if r, ok := o.core.Repository().(interface{ Dialect() core.Dialect }); ok && r.Dialect() != d.dialect {
		return nil, fmt.Errorf("outbox: config: the tables of Outbox are in a %s database, the driver is for %s",
			r.Dialect(), d.dialect)
	}
	return o, nil
}

const migrateTimeout = time.Minute

// build makes the core.Outbox on the database of the driver.
func (c Config) build(ctx context.Context, d *driver) (*core.Outbox, error) {
	pool := poolOf(d.Driver)
	if pool == nil {
		return nil, fmt.Errorf("outbox: the driver %T has no *sql.DB: give New the driver below it, or set "+
			"Config.Outbox", d.Driver)
	}
	repo, err := sqloutbox.New(pool, sqloutbox.Config{Dialect: d.dialect, Schema: c.Schema, Prefix: c.Prefix})
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
	if err != nil {
		return nil, err
	}
	if c.AutoCreate {
		ctx, cancel := context.WithTimeout(ctx, migrateTimeout)
		defer cancel()
		if err := repo.Migrate(ctx); err != nil {
			return nil, err
		}
	}
	return ob, nil
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

func (o *Outbox) fail(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mistakes = errors.Join(o.mistakes, err)
}

func (o *Outbox) problem() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.mistakes
}

// Driver returns the driver that clients are made with: ent.NewClient(ent.Driver(ob.Driver())). It
// does what the driver given to New does, and hears how transactions end: of Tx and BeginTx, of
// Debug clients, with hooks on commits or without. Closing the client closes the driver that was
// given to New.
func (o *Outbox) Driver() dialect.Driver { return o.driver }

// Outbox returns the core.Outbox.
func (o *Outbox) Outbox() *core.Outbox { return o.core }

// Run relays events until ctx ends; see core.Outbox.Run.
func (o *Outbox) Run(ctx context.Context) error {
	if err := o.problem(); err != nil {
		return err
	}
	return o.core.Run(ctx)
}

// Drain publishes everything that is due, then returns; see core.Outbox.Drain.
func (o *Outbox) Drain(ctx context.Context) error {
	if err := o.problem(); err != nil {
		return err
	}
	return o.core.Drain(ctx)
}

// Backlog says how the table stands; see core.Outbox.Backlog.
func (o *Outbox) Backlog(ctx context.Context) (Backlog, error) { return o.core.Backlog(ctx) }

// ListDead lists events that were given up; see core.Outbox.ListDead.
func (o *Outbox) ListDead(ctx context.Context, q DeadQuery) ([]DeadEvent, error) {
	return o.core.ListDead(ctx, q)
}

// Redrive opens dead events again; see core.Outbox.Redrive.
func (o *Outbox) Redrive(ctx context.Context, req AdminRequest) (int, error) {
	return o.core.Redrive(ctx, req)
}

// ResetKeys is for use after a failover that lost commits; see core.Outbox.ResetKeys.
func (o *Outbox) ResetKeys(ctx context.Context) (int, error) { return o.core.ResetKeys(ctx) }

// Discard ends events for good; see core.Outbox.Discard.
func (o *Outbox) Discard(ctx context.Context, req AdminRequest) (int, error) {
	return o.core.Discard(ctx, req)
}
