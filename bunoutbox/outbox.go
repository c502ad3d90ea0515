package bunoutbox

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/uptrace/bun"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
)

// ErrNoHook: a model hook of this package was called by a *bun.DB that does not have the hook of an
// Outbox. WithQueryHook returns the *bun.DB to work with, and so does DB.
var ErrNoHook = errors.New("outbox: the *bun.DB does not have the query hook: use that of ob.DB(), or the result of " +
	"db.WithQueryHook(ob.Hook())")

// Outbox is Bun's side of a core.Outbox. Make it with New, give its Hook to the *bun.DB, and run
// Run in one goroutine of each process that relays. It is safe for use by several goroutines.
type Outbox struct {
	cfg     Config
	core    *core.Outbox
	db      *bun.DB // with the hook
	dialect core.Dialect
	hook    *hook

	mappers   mappers
	recorders sync.Map // by model type: whether it embeds a Recorder, or why it must not be used
	warned    sync.Map // model types whose keyless statements were logged
}

// New makes an Outbox on the database of db. It reports a wrong configuration, an unsupported
// database and failed migrations. RunInTx works on db with the query hooks that it has now.
func New(db *bun.DB, cfg Config) (*Outbox, error) { return newOutbox(context.Background(), db, cfg) }

func newOutbox(ctx context.Context, db *bun.DB, cfg Config) (*Outbox, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Logger == nil {
		cfg.Logger = core.DefaultLogger()
	}
	d, err := dialectOf(db)
	if err != nil {
		return nil, err
	}
	o := &Outbox{cfg: cfg, dialect: d, core: cfg.Outbox}
	if o.core == nil {
		if o.core, err = build(ctx, db, d, cfg); err != nil {
			return nil, err
		}
	} else if r, ok := o.core.Repository().(interface{ Dialect() core.Dialect }); ok && r.Dialect() != d {
		return nil, fmt.Errorf("outbox: config: the tables of Outbox are in a %s database, the *bun.DB is %s",
			r.Dialect(), d)
	}
	o.hook = &hook{ob: o}
	o.db = db.WithQueryHook(o.hook)
	return o, nil
}

// build makes the core.Outbox on the database of db.
func build(ctx context.Context, db *bun.DB, d core.Dialect, cfg Config) (*core.Outbox, error) {
	repo, err := sqloutbox.New(db.DB, sqloutbox.Config{Dialect: d, Schema: cfg.Schema, Prefix: cfg.Prefix})
	if err != nil {
		return nil, err
	}
	c := core.Config{
		Repository: repo, Publisher: cfg.Publisher, Routes: cfg.Routes, RejectUntracked: cfg.RejectUntracked,
		Headers: cfg.Headers, Logger: cfg.Logger, Observer: cfg.Observer,
	}
	if cfg.Configure != nil {
		cfg.Configure(&c)
	}
	ob, err := core.New(c)
	if err != nil {
		return nil, err
	}
	if cfg.AutoCreate {
		if err := repo.Migrate(ctx); err != nil {
			return nil, err
		}
	}
	return ob, nil
}

func dialectOf(db *bun.DB) (core.Dialect, error) {
	if db == nil || db.DB == nil {
		return "", errors.New("outbox: the *bun.DB is nil")
	}
	return dialectNamed(db.Dialect())
}

// DB returns the *bun.DB to work with: that given to New, with the hook that captures the events of
// models. A *bun.DB without it writes rows and no events.
func (o *Outbox) DB() *bun.DB { return o.db }

// Hook returns what captures the events of models, for a *bun.DB other than that of DB. Note that
// db.WithQueryHook(ob.Hook()) leaves db as it is and returns the one that captures. It is always
// the same hook. A *bun.DB that has it twice captures once.
func (o *Outbox) Hook() bun.QueryHook { return o.hook }

// Outbox returns the core.Outbox behind it.
func (o *Outbox) Outbox() *core.Outbox { return o.core }

// ready returns what was wrong with the On functions.
func (o *Outbox) ready() error {
	if o == nil {
		return errors.New("outbox: the *Outbox is nil: make it with New")
	}
	return o.mappers.problem()
}

// Run relays events until ctx ends; see core.Outbox.Run.
func (o *Outbox) Run(ctx context.Context) error {
	if err := o.ready(); err != nil {
		return err
	}
	return o.core.Run(ctx)
}

// Drain publishes everything that is due, then returns; see core.Outbox.Drain.
func (o *Outbox) Drain(ctx context.Context) error {
	if err := o.ready(); err != nil {
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
