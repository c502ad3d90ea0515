package ops

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/once/command"
)

// CountLimit is where the counts of Consumers, Effects and IdempotencyKeys stop.
const CountLimit = 100_000

// Beside has the tables that may exist next to an outbox's. Tables are not in reach if their field
// is nil, or if the database lacks them: the field's errors then wrap core.ErrNoTables.
type Beside struct {
	Inbox   inbox.Desk
	Effects command.Store
	Keys    once.Desk
	// Transactor begins the transactions of RedriveEffects and DiscardEffects, in which the Outbox
	// publishes. Nil: both return an error wrapping errors.ErrUnsupported.
	Transactor core.Transactor
}

// BesideStore is a Store with access to the tables next to its outbox's. An API with another Store
// has no consumers, effects and idempotency keys. Package sqlops has one: it uses the tables of the
// same database and schema that have no prefix. For tables with another prefix, embed it in a type
// whose Beside returns them.
type BesideStore interface {
	Store
	// Beside sends nothing to the database.
	Beside() Beside
}

// absence remembers that tables are not there. The server need not log a failed statement for each
// look at a page.
type absence struct{ until atomic.Int64 }

const absent = 30 * time.Second

// there turns the error of missing tables into false.
func (a *absence) there(err error) (bool, error) {
	if errors.Is(err, core.ErrNoTables) {
		a.until.Store(time.Now().Add(absent).UnixNano())
		return false, nil
	}
	return err == nil, err
}

func (a *absence) holds() bool { return time.Now().UnixNano() < a.until.Load() }

// besides has the API's access to the tables next to the outbox's.
type besides struct {
	Beside
	noInbox, noEffects, noKeys absence
}

func newBesides(s Store) *besides {
	if b, ok := s.(BesideStore); ok {
		return &besides{Beside: b.Beside()}
	}
	return &besides{}
}

// noTables refuses a change of tables that are not in reach.
func noTables(what string) error {
	return &core.FieldError{Err: core.ErrNoTables, Format: "ops: no table of %s is in reach", Args: []any{what}}
}
