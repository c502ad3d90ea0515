package bunoutbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/uptrace/bun"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/adapter"
	"github.com/ormoutbox/ormoutbox/core/adapter/capture"
)

// Outbox connects Bun to a core.Outbox. Make it with New, and work with the *bun.DB that DB
// returns. Call Run in one goroutine of each process that relays. It is safe for use by several
// goroutines.
type Outbox struct {
	// Run, Drain and what operators do are the same for every ORM.
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

// Hook returns the hook that captures the events of models, for a *bun.DB other than that of DB.
// Note that db.WithQueryHook(ob.Hook()) does not change db: it returns a new *bun.DB that captures.
// Hook always returns the same hook. A *bun.DB that has the hook twice captures once.
func (o *Outbox) Hook() bun.QueryHook { return o.hook }

// ready returns the mistakes of the On functions.
func (o *Outbox) ready() error {
	if o == nil || o.own == nil {
		return fmt.Errorf("%w: the *Outbox was not made by bunoutbox.New", core.ErrNotInstalled)
	}
	_, err := o.own.Core()
	return err
}
