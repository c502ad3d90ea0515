package gormoutbox

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"gorm.io/gorm"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
)

// ErrNotInstalled: the plugin is not in use yet. Call db.Use(ob) first.
var ErrNotInstalled = errors.New("outbox: plugin is not installed: call db.Use with it first")

// Outbox is the plugin: GORM's side of a core.Outbox. Make it with Plugin, give it to db.Use, and
// run Run in one goroutine of each process that relays. It is safe for use by several goroutines.
type Outbox struct {
	cfg  Config
	core atomic.Pointer[core.Outbox] // nil until installed
	mu   sync.Mutex                  // serialises Initialize

	dialect   core.Dialect // written before core
	mappers   mappers
	recorders sync.Map // by model type: recorderType
	alone     sync.Map // by table, on MySQL: aloneKey
	warned    sync.Map // model types whose keyless statements were logged
}

// Plugin returns the plugin, which does nothing until it is given to db.Use.
func Plugin(cfg Config) *Outbox {
	if cfg.Name == "" {
		cfg.Name = defaultName
	}
	if cfg.Logger == nil {
		cfg.Logger = core.DefaultLogger()
	}
	if cfg.MaxResolvedRows == 0 {
		cfg.MaxResolvedRows = defaultMaxResolvedRows
	}
	return &Outbox{cfg: cfg}
}

// Name implements gorm.Plugin.
func (o *Outbox) Name() string { return o.cfg.Name }

// Initialize implements gorm.Plugin; db.Use calls it. It reports a wrong configuration, an
// unsupported database and failed migrations. dbresolver calls it again for the databases it opens.
func (o *Outbox) Initialize(db *gorm.DB) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.core.Load() == nil {
		if err := o.install(db); err != nil {
			return err
		}
	} else if db.Plugins[o.Name()] != gorm.Plugin(o) {
		return errors.New("outbox: this plugin is in use with another *gorm.DB: make one Plugin for each database")
	} else if d, err := dialectOf(db); err != nil || d != o.dialect {
		return fmt.Errorf("outbox: database %q differs from the %q this plugin was installed on", db.Name(), o.dialect)
	}
	o.wrapPools(db)
	return o.registerCallbacks(db)
}

func (o *Outbox) install(db *gorm.DB) error {
	if err := errors.Join(o.cfg.validate(), o.mappers.problem()); err != nil {
		return err
	}
	d, err := dialectOf(db)
	if err != nil {
		return err
	}
	ob := o.cfg.Outbox
	if ob == nil {
		if ob, err = o.build(db, d); err != nil {
			return err
		}
	} else if r, ok := ob.Repository().(interface{ Dialect() core.Dialect }); ok && r.Dialect() != d {
		return fmt.Errorf("outbox: config: the tables of Outbox are in a %s database, the *gorm.DB is %s", r.Dialect(),
			d)
	}
	o.dialect = d
	o.core.Store(ob)
	return nil
}

// build makes the core.Outbox on the database of db.
func (o *Outbox) build(db *gorm.DB, d core.Dialect) (*core.Outbox, error) {
	pool, err := db.DB()
	if err != nil {
		return nil, fmt.Errorf("outbox: the *gorm.DB has no *sql.DB: %w", err)
	}
	repo, err := sqloutbox.New(pool, sqloutbox.Config{Dialect: d, Schema: o.cfg.Schema, Prefix: o.cfg.Prefix})
	if err != nil {
		return nil, err
	}
	cfg := core.Config{
		Repository: repo, Publisher: o.cfg.Publisher, Routes: o.cfg.Routes, RejectUntracked: o.cfg.RejectUntracked,
		Headers: o.cfg.Headers, Logger: o.cfg.Logger, Observer: o.cfg.Observer,
	}
	if o.cfg.Configure != nil {
		o.cfg.Configure(&cfg)
	}
	ob, err := core.New(cfg)
	if err != nil {
		return nil, err
	}
	if o.cfg.AutoCreate {
		if err := repo.Migrate(contextOf(db)); err != nil {
			return nil, err
		}
	}
	return ob, nil
}

func dialectOf(db *gorm.DB) (core.Dialect, error) {
	if db == nil || db.Config == nil || db.Dialector == nil {
		return "", errors.New("outbox: the *gorm.DB is nil or not open")
	}
	switch name := db.Name(); name {
	case "postgres":
		return core.Postgres, nil
	case "mysql":
		return core.MySQL, nil
	case "sqlite":
		return core.SQLite, nil
	default:
		return "", fmt.Errorf("outbox: GORM dialect %q is not supported: use postgres, mysql or sqlite", name)
	}
}

func contextOf(db *gorm.DB) context.Context {
	if db.Statement != nil && db.Statement.Context != nil {
		return db.Statement.Context
	}
	return context.Background()
}

func (o *Outbox) installed() (*core.Outbox, error) {
	if o == nil {
		return nil, ErrNotInstalled
	}
	ob := o.core.Load()
	if ob == nil {
		return nil, ErrNotInstalled
	}
	return ob, o.mappers.problem()
}

// Outbox returns the core.Outbox behind the plugin, and nil before db.Use.
func (o *Outbox) Outbox() *core.Outbox { return o.core.Load() }

// Run relays events until ctx ends; see core.Outbox.Run. Before db.Use it returns ErrNotInstalled.
func (o *Outbox) Run(ctx context.Context) error {
	ob, err := o.installed()
	if err != nil {
		return err
	}
	return ob.Run(ctx)
}

// Drain publishes everything that is due, then returns; see core.Outbox.Drain.
func (o *Outbox) Drain(ctx context.Context) error {
	ob, err := o.installed()
	if err != nil {
		return err
	}
	return ob.Drain(ctx)
}

// Backlog says how the table stands; see core.Outbox.Backlog.
func (o *Outbox) Backlog(ctx context.Context) (Backlog, error) {
	ob, err := o.installed()
	if err != nil {
		return Backlog{}, err
	}
	return ob.Backlog(ctx)
}

// ListDead lists events that were given up; see core.Outbox.ListDead.
func (o *Outbox) ListDead(ctx context.Context, q DeadQuery) ([]DeadEvent, error) {
	ob, err := o.installed()
	if err != nil {
		return nil, err
	}
	return ob.ListDead(ctx, q)
}

// Redrive opens dead events again; see core.Outbox.Redrive.
func (o *Outbox) Redrive(ctx context.Context, req AdminRequest) (int, error) {
	ob, err := o.installed()
	if err != nil {
		return 0, err
	}
	return ob.Redrive(ctx, req)
}

// ResetKeys is for use after a failover that lost commits; see core.Outbox.ResetKeys.
func (o *Outbox) ResetKeys(ctx context.Context) (int, error) {
	ob, err := o.installed()
	if err != nil {
		return 0, err
	}
	return ob.ResetKeys(ctx)
}

// Discard ends events for good; see core.Outbox.Discard.
func (o *Outbox) Discard(ctx context.Context, req AdminRequest) (int, error) {
	ob, err := o.installed()
	if err != nil {
		return 0, err
	}
	return ob.Discard(ctx, req)
}
