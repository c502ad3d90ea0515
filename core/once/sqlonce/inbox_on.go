package sqlonce

import (
	"context"
	"fmt"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

// InboxOn returns the inbox tables in the database of t, for who has a Transactor of an ORM and no
// pool: what New and Store.Inbox give work on a pool. Its own short transactions are those of t,
// with their isolation. cfg.Dialect is required: it is what core.Tx.Dialect says.
func InboxOn(t core.Transactor, cfg Config) (*Inbox, error) {
	if err := core.CheckTransactor(t); err != nil {
		return nil, fmt.Errorf("sqlonce: %w", err)
	}
	n, err := cfg.names()
	if err != nil {
		return nil, err
	}
	s := &Store{transactor: t, dialect: cfg.Dialect, names: n}
	return s.Inbox(), nil
}

// Migrate does what Store.Migrate does. With an Inbox of InboxOn, Config.Schema must exist.
func (i *Inbox) Migrate(ctx context.Context) error {
	if i.s.transactor == nil {
		return i.s.Migrate(ctx)
	}
	plan, err := i.s.plan()
	if err != nil {
		return err
	}
	return wrap("migrate", sqlkit.MigrateTx(ctx, i.s.transactor, plan))
}
