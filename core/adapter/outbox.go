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
	"github.com/ormoutbox/ormoutbox/core/internal/errtext"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
)

// Outbox is the part of an adapter's outbox that does not depend on the ORM. Create it with New. It
// is safe for use by several goroutines.
type Outbox struct {
	// Mappers are the On functions.
	Mappers Mappers

	recorders sync.Map // of HasRecorder: recorderType by type
	cfg       Config
	dialect   core.Dialect                // written before core
	core      atomic.Pointer[core.Outbox] // nil until Open
	warned    sync.Map                    // the types that LeftOut has logged
	install   string                      // the remedy before Open
}

// New returns an Outbox without a database: until Open its errors are core.ErrNotInstalled. install
// is the part of that error that contains the remedy.
func New(cfg Config, install string) *Outbox {
	cfg.Logger = cmp.Or(cfg.Logger, core.DefaultLogger())
	o := &Outbox{cfg: cfg, install: install}
	o.Mappers.owns = o.owns
	return o
}

const migrateTimeout = time.Minute

// Open makes the core.Outbox on a database, or takes Config.Outbox. It calls pool if it makes one.
// Open reports mistakes in the configuration and in the On functions, and a failed migration. Call
// it once.
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
	repo, err := sqloutbox.NewWithDialect(ctx, db, d, sqloutbox.Config{
		Schema: o.cfg.Schema, Prefix: o.cfg.Prefix, PartitionEvery: o.cfg.PartitionEvery,
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

// Log returns the logger of the configuration with the component of the outbox.
func (o *Outbox) Log() *slog.Logger { return o.cfg.Logger.With("component", "outbox") }

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

// Publish records events in tx. A nil tx stands for ctx's transaction. For errors see
// core.Outbox.Publish and Core.
func (o *Outbox) Publish(ctx context.Context, tx core.Tx, events ...core.Event) error {
	ob, err := o.Core()
	if err != nil {
		return err
	}
	_, err = ob.Publish(ctx, tx, events...)
	return err
}

// LeftOut returns the function to call when a statement causes no events because only OnAll asks
// for its type, and the database cannot name its rows. It logs one warning for each type.
func (o *Outbox) LeftOut(ctx context.Context, typ any, of string) func() {
	return func() {
		if _, logged := o.warned.LoadOrStore(typ, true); !logged {
			o.Log().WarnContext(ctx, "outbox: OnAll leaves a type out, because its table has no primary key", "of", of)
		}
	}
}

// ownTables are the tables of the outbox, without their prefix, and inboxTables the tables of the
// inbox, of keys and of effects, by their names without a prefix.
var (
	ownTables   = []string{"event", "key", "audit", "relay", "plan", "pause", "group", "migration", "log"}
	inboxTables = []string{
		"inbox_handler", "inbox_seen", "inbox_failure", "inbox_key", "inbox_migration", "inbox_program",
		"idempotency_key", "side_effect_command", "side_effect_program",
	}
)

// owns reports whether a table, perhaps with its schema, belongs to the outbox or the inbox.
func (o *Outbox) owns(table string) bool {
	table = table[strings.LastIndexByte(table, '.')+1:]
	prefix := cmp.Or(o.cfg.Prefix, sqloutbox.DefaultPrefix)
	if ob := o.cfg.Outbox; ob != nil {
		if r, ok := ob.Repository().(interface{ Prefix() string }); ok {
			prefix = r.Prefix()
		}
	}
	own, ok := strings.CutPrefix(table, prefix)
	return slices.Contains(inboxTables, table) ||
		ok && (slices.Contains(ownTables, own) || slices.Contains(inboxTables, own))
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

// Operations are the methods of an adapter's outbox that do not depend on its ORM. Before the
// outbox has a database they return an error wrapping core.ErrNotInstalled. If an On function was
// registered with a mistake, Run and Drain return the mistake. The outbox of an adapter embeds
// Operations. The zero value belongs to an outbox without a database.
type Operations struct{ of *Outbox }

// Operations returns the Operations of o.
func (o *Outbox) Operations() Operations { return Operations{o} }

// relaying returns the outbox for Run and Drain.
func (p Operations) relaying() (*core.Outbox, error) {
	if p.of == nil {
		return nil, core.ErrNotInstalled
	}
	return p.of.Core()
}

// opened returns the outbox for calls about stored events, even if an On function was registered
// wrongly.
func (p Operations) opened() (*core.Outbox, error) {
	if ob := p.Outbox(); ob != nil {
		return ob, nil
	}
	return p.relaying()
}

// Outbox returns the core.Outbox behind the adapter, nil before there is one.
func (p Operations) Outbox() *core.Outbox {
	if p.of == nil {
		return nil
	}
	return p.of.core.Load()
}

// Run relays events until ctx ends; see core.Outbox.Run. Call it in one goroutine of each process
// that relays.
func (p Operations) Run(ctx context.Context) error {
	ob, err := p.relaying()
	if err != nil {
		return err
	}
	return ob.Run(ctx)
}

// Drain publishes everything that is due, then returns; see core.Outbox.Drain.
func (p Operations) Drain(ctx context.Context) error {
	ob, err := p.relaying()
	if err != nil {
		return err
	}
	return ob.Drain(ctx)
}

// Backlog counts pending and dead events; see core.Outbox.Backlog.
func (p Operations) Backlog(ctx context.Context) (core.Backlog, error) {
	ob, err := p.opened()
	if err != nil {
		return core.Backlog{}, err
	}
	return ob.Backlog(ctx)
}

// ListDead lists dead events; see core.Outbox.ListDead.
func (p Operations) ListDead(ctx context.Context, q core.DeadQuery) ([]core.DeadEvent, error) {
	ob, err := p.opened()
	if err != nil {
		return nil, err
	}
	return ob.ListDead(ctx, q)
}

// Redrive lets dead events be tried again; see core.Outbox.Redrive.
func (p Operations) Redrive(ctx context.Context, req core.AdminRequest) (int, error) {
	ob, err := p.opened()
	if err != nil {
		return 0, err
	}
	return ob.Redrive(ctx, req)
}

// Discard ends events without publishing them; see core.Outbox.Discard.
func (p Operations) Discard(ctx context.Context, req core.AdminRequest) (int, error) {
	ob, err := p.opened()
	if err != nil {
		return 0, err
	}
	return ob.Discard(ctx, req)
}

// ResetKeys is for use after a failover that lost commits; see core.Outbox.ResetKeys.
func (p Operations) ResetKeys(ctx context.Context, actor, reason string) (int, error) {
	ob, err := p.opened()
	if err != nil {
		return 0, err
	}
	return ob.ResetKeys(ctx, actor, reason)
}

// Errorf is fmt.Errorf for a text that begins with "outbox: ". The prefix of an error that it wraps
// is removed.
func Errorf(format string, args ...any) error { return errtext.Errorf(format, args...) }

// CausesEvents is the error of a statement that is refused, because its events could not be
// written. err is the reason. of names the table or the type.
func CausesEvents(op fmt.Stringer, of string, err error) error {
	return Errorf("outbox: %s of %s causes events: %w", op, of, err)
}
