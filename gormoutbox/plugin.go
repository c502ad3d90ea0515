package gormoutbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"

	"gorm.io/gorm"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/adapter"
	"github.com/ormoutbox/ormoutbox/core/adapter/capture"
)

// Outbox is the plugin, which connects GORM to a core.Outbox. Create it with Plugin, give it to
// db.Use, and call Run in one goroutine of each process that relays. It is safe for use by several
// goroutines.
type Outbox struct {
	// Run, Drain and the calls of operators are the same for every ORM.
	adapter.Operations

	own    *adapter.Outbox
	server capture.Server
	name   string
	mu     sync.Mutex // serialises Initialize
	used   bool       // db.Use was called; guarded by mu
}

// Plugin returns the plugin. It does nothing until it is given to db.Use.
func Plugin(cfg Config) *Outbox { return NamedPlugin("outbox", cfg) }

// NamedPlugin is Plugin with a name other than "outbox", so that one *gorm.DB can have several.
func NamedPlugin(name string, cfg Config) *Outbox {
	own := adapter.New(cfg, "call db.Use with the plugin first")
	return &Outbox{Operations: own.Operations(), own: own, name: name}
}

// New makes a plugin and gives it to db.Use.
func New(db *gorm.DB, cfg Config) (*Outbox, error) { return newOutbox(context.Background(), db, cfg) }

func newOutbox(ctx context.Context, db *gorm.DB, cfg Config) (*Outbox, error) {
	ob := Plugin(cfg)
	if err := ob.open(ctx, db); err != nil {
		return nil, err
	}
	if err := db.Use(ob); err != nil {
		return nil, err
	}
	return ob, nil
}

// Name implements gorm.Plugin.
func (o *Outbox) Name() string {
	if o == nil {
		return ""
	}
	return o.name
}

// Initialize implements gorm.Plugin; db.Use calls it. It reports a wrong configuration, an
// unsupported database and failed migrations. dbresolver calls it again for the databases it opens.
func (o *Outbox) Initialize(db *gorm.DB) error {
	if o == nil || o.own == nil {
		return fmt.Errorf("%w: the *Outbox was not made by gormoutbox.Plugin", core.ErrNotInstalled)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.used {
		if err := o.open(contextOf(db), db); err != nil {
			return err
		}
		o.used = true
	} else if db.Plugins[o.Name()] != gorm.Plugin(o) {
		return errors.New("outbox: this plugin is in use with another *gorm.DB: make one Plugin for each database")
	} else if d, err := dialectOf(db); err != nil || d != o.own.Dialect() {
		return fmt.Errorf("outbox: database %q differs from the %q this plugin was installed on", db.Name(),
			o.own.Dialect())
	}
	o.wrapPools(db)
	return o.registerCallbacks(db)
}

// open makes the outbox of the database, once.
func (o *Outbox) open(ctx context.Context, db *gorm.DB) error {
	d, err := dialectOf(db)
	if err != nil || o.own.Opened() {
		return err
	}
	return o.own.Open(ctx, d, func() (*sql.DB, error) {
		pool, err := db.DB()
		if err != nil {
			return nil, fmt.Errorf("outbox: the *gorm.DB has no *sql.DB: %w", err)
		}
		return pool, nil
	})
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

// Config configures the outbox. It has every setting of core.Config except the Repository. It also
// has the place of the tables (AutoCreate, Schema, Prefix), and can name an existing outbox to
// share (Outbox). Package core/adapter lists the fields, the same for every ORM. The zero value is
// usable: events are inserted into the existing tables, and another process relays them. db.Use,
// New and Open report mistakes.
type Config = adapter.Config

// Open opens a database as gorm.Open does, and makes its outbox with New. Every transaction that is
// begun on the *gorm.DB is tracked.
//
//	db, ob, err := gormoutbox.Open(ctx, postgres.Open(dsn), gormoutbox.Config{Publisher: publisher, AutoCreate: true})
//	if err != nil { ... }
//	go ob.Run(ctx)
//
// gorm.Open connects to the database. AutoCreate needs a connection too, and waits for the database
// until ctx ends, at most a minute. Open returns an error for a wrong configuration, an unsupported
// dialect and a failed migration. After an error it leaves nothing open.
func Open(
	ctx context.Context, dialector gorm.Dialector, cfg Config, options ...gorm.Option,
) (*gorm.DB, *Outbox, error) {
	if dialector == nil {
		return nil, nil, errors.New("outbox: the gorm.Dialector is nil: give postgres.Open(dsn), say")
	}
	db, err := gorm.Open(dialector, options...)
	if err != nil {
		return nil, nil, err
	}
	ob, err := newOutbox(ctx, db, cfg)
	if err != nil {
		if pool, none := db.DB(); none == nil {
			err = errors.Join(err, pool.Close())
		}
		return nil, nil, err
	}
	return db, ob, nil
}
