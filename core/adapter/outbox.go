package adapter

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
)

// Outbox is the part of an adapter's outbox that does not depend on the ORM. Create it with New. It
// is safe for use by several goroutines.
type Outbox struct {
	// Mappers are the On functions.
	Mappers Mappers
	// Recorders knows which models embed a Recorder.
	Recorders Recorders

	cfg     Config
	dialect core.Dialect                // written before core
	core    atomic.Pointer[core.Outbox] // nil until Open
	warned  sync.Map                    // the types that LeftOut has logged
	install string                      // what the program has to do before Open
}

// New returns an Outbox without a database: until Open its errors are core.ErrNotInstalled. install
// is the part of that error that tells the program what to do.
func New(cfg Config, install string) *Outbox {
	cfg.Logger = cmp.Or(cfg.Logger, core.DefaultLogger())
	o := &Outbox{cfg: cfg, install: install}
	o.Mappers.owns = o.owns
	return o
}

const migrateTimeout = time.Minute

// Open makes the core.Outbox on a database, or takes the one of Config.Outbox. It calls pool if it
// makes one. Open reports mistakes in the configuration and in the On functions, and a failed
// migration. Call it once.
func (o *Outbox) Open(ctx context.Context, d core.Dialect, pool func() (*sql.DB, error)) error {
	if err := o.cfg.Validate(); err != nil {
		return err
	}
	if err := o.Mappers.Err(); err != nil {
		return err
	}
	ob := o.cfg.Outbox
	if ob == nil {
		var err error
		if ob, err = o.build(ctx, d, pool); err != nil {
			return err
		}
	} else if r, ok := ob.Repository().(interface{ Dialect() core.Dialect }); ok && r.Dialect() != d {
		return fmt.Errorf("%w: config: the tables of Outbox are in a %s database, this one is %s",
			core.ErrOtherDatabase, r.Dialect(), d)
	}
	o.dialect = d
	o.core.Store(ob)
	return nil
}

func (o *Outbox) build(ctx context.Context, d core.Dialect, pool func() (*sql.DB, error)) (*core.Outbox, error) {
	db, err := pool()
	if err != nil {
		return nil, err
	}
	repo, err := sqloutbox.New(db, sqloutbox.Config{
		Dialect: d, Schema: o.cfg.Schema, Prefix: o.cfg.Prefix, PartitionEvery: o.cfg.PartitionEvery,
	})
	if err != nil {
		return nil, err
	}
	ob, err := core.New(o.cfg.core(repo))
	if err != nil || !o.cfg.AutoCreate {
		return ob, err
	}
	ctx, cancel := context.WithTimeout(ctx, migrateTimeout)
	defer cancel()
	return ob, repo.Migrate(ctx)
}

// Config returns the configuration, with a Logger.
func (o *Outbox) Config() Config { return o.cfg }

// Dialect returns the dialect of the database, "" before Open.
func (o *Outbox) Dialect() core.Dialect { return o.dialect }

// Opened reports whether Open has succeeded.
func (o *Outbox) Opened() bool { return o.core.Load() != nil }

// Core returns the core.Outbox. Before Open the error is core.ErrNotInstalled. After Open it names
// the mistakes of On functions that were registered since.
func (o *Outbox) Core() (*core.Outbox, error) {
	ob := o.core.Load()
	if ob == nil {
		return nil, fmt.Errorf("%w: %s", core.ErrNotInstalled, o.install)
	}
	return ob, o.Mappers.Err()
}

// Publish records events in tx. A nil tx stands for the one that ctx carries. Errors are those of
// core.Outbox.Publish and of Core.
func (o *Outbox) Publish(ctx context.Context, tx core.Tx, events ...core.Event) error {
	ob, err := o.Core()
	if err != nil {
		return err
	}
	_, err = ob.Publish(ctx, tx, events...)
	return err
}

// LeftOut returns what to call when a statement causes no events because only OnAll asks for its
// type, and the database cannot name its rows. It logs one warning for each type.
func (o *Outbox) LeftOut(ctx context.Context, typ any, of string) func() {
	return func() {
		if _, logged := o.warned.LoadOrStore(typ, true); !logged {
			o.cfg.Logger.WarnContext(ctx, "outbox: OnAll leaves a type out, because its table has no primary key",
				"component", "outbox", slog.String("of", of))
		}
	}
}

// ownTables are the tables of the outbox, without their prefix, and inboxTables those of the inbox,
// which may have a prefix that the outbox does not know.
var (
	ownTables   = []string{"event", "key", "audit", "relay", "plan", "pause", "group", "migration"}
	inboxTables = []string{"inbox_handler", "inbox_seen", "inbox_failure", "inbox_key", "inbox_migration"}
)

// owns reports whether a table, perhaps with its schema, is one of the outbox or of the inbox.
func (o *Outbox) owns(table string) bool {
	table = table[strings.LastIndexByte(table, '.')+1:]
	prefix := cmp.Or(o.cfg.Prefix, sqloutbox.DefaultPrefix)
	if ob := o.cfg.Outbox; ob != nil {
		if r, ok := ob.Repository().(interface{ Prefix() string }); ok {
			prefix = r.Prefix()
		}
	}
	own, ok := strings.CutPrefix(table, prefix)
	return ok && slices.Contains(ownTables, own) ||
		slices.ContainsFunc(inboxTables, func(name string) bool { return strings.HasSuffix(table, name) })
}

// Check returns the error that Publish would return for tx with any events. Call it before a
// statement whose events will be written in tx.
func (o *Outbox) Check(ctx context.Context, tx core.Tx) error {
	ob, err := o.Core()
	if err != nil {
		return err
	}
	return ob.CheckTx(ctx, tx)
}
