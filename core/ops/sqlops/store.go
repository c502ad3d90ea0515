// Package sqlops is the Store of package ops for the tables of a sqloutbox.Repository: it lists and
// changes events, and keeps plans, notes on groups of failures and windows of consumers.
package sqlops

import (
	"errors"
	"fmt"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox/sqlinbox"
	"github.com/ormoutbox/ormoutbox/core/internal/outboxsql"
	"github.com/ormoutbox/ormoutbox/core/once/command/sqlcommand"
	"github.com/ormoutbox/ormoutbox/core/once/sqlonce"
	"github.com/ormoutbox/ormoutbox/core/ops"
)

// New returns the API of an Outbox whose Repository is package sqloutbox's, as in an Outbox of
// sqloutbox.Open, gormoutbox, bunoutbox, entoutbox and pgxoutbox. See ops.New. The API also has the
// consumers, effects and idempotency keys of the same schema, if their tables have no prefix.
func New(ob *core.Outbox) (*ops.API, error) {
	if ob == nil {
		return nil, errors.New("sqlops: the Outbox is nil")
	}
	store, err := NewStore(ob.Repository())
	if err != nil {
		return nil, err
	}
	return ops.New(ob, store)
}

// Store implements ops.Store. Create it with NewStore. It is safe for use by several goroutines.
type Store struct {
	tables  outboxsql.Tables
	params  *outboxsql.Params
	plans   planStatements
	replays replayStatements
	edits   editStatements
	erases  eraseStatements
	groups  groupStatements
	windows windowStatements
	beside  ops.Beside

	records      recordStatements
	destinations destinationStatements
}

var _ ops.BesideStore = (*Store)(nil)

// NewStore returns the Store for the tables of a Repository of package sqloutbox. It uses no
// database.
func NewStore(repo core.Repository) (*Store, error) {
	r, ok := repo.(interface{ Tables() outboxsql.Tables })
	if !ok {
		return nil, fmt.Errorf("sqlops: a %T is not a Repository of package sqloutbox", repo)
	}
	s := newStore(r.Tables())
	var err error
	s.beside, err = besideOf(s.tables)
	return s, err
}

func newStore(t outboxsql.Tables) *Store {
	p := outboxsql.ParamsOf(t.Dialect)
	return &Store{
		tables: t, params: p, plans: newPlanStatements(t), replays: newReplayStatements(t),
		edits: newEditStatements(t, p), erases: newEraseStatements(t, p), records: newRecordStatements(t, p),
		groups: newGroupStatements(t, p), windows: newWindowStatements(t, p),
		destinations: newDestinationStatements(t),
	}
}

// Beside implements ops.BesideStore.
func (s *Store) Beside() ops.Beside { return s.beside }

func besideOf(t outboxsql.Tables) (b ops.Beside, err error) {
	b.Transactor = t.Transactor
	b.Inbox, err = sqlinbox.Beside(t.Beside, sqlinbox.Config{Dialect: t.Dialect, Schema: t.Schema})
	if err != nil {
		return b, err
	}
	b.Effects, err = sqlcommand.Beside(t.Beside, sqlcommand.Config{Dialect: t.Dialect, Schema: t.Schema})
	if err != nil {
		return b, err
	}
	b.Keys, err = sqlonce.Beside(t.Beside, sqlonce.Config{Dialect: t.Dialect, Schema: t.Schema})
	return b, err
}
