package inbox

import (
	"context"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/once/sqlonce"
)

// Store is the table. sqlonce.Inbox implements it, and package inboxtest has one in memory for
// tests.
type Store interface {
	// Begin, BeginBatch and Advance work in the transaction of the handler's effects, the others in
	// their own.
	Begin(ctx context.Context, tx core.Tx, e Event) (state sqlonce.InboxState, attempt int, err error)
	BeginBatch(ctx context.Context, tx core.Tx, events []Event) ([]sqlonce.InboxState, error)
	Advance(ctx context.Context, tx core.Tx, e Event) (newer bool, err error)

	Fail(ctx context.Context, f sqlonce.InboxFailure) (state sqlonce.InboxState, attempts int, err error)
	ListParked(ctx context.Context, q sqlonce.InboxQuery) ([]Parked, error)
	Release(ctx context.Context, keys []Key, actor, reason string) (changed int, err error)
	Cleanup(ctx context.Context, consumer string, keep time.Duration, limit int) (deleted int, err error)
	CleanupKeys(ctx context.Context, consumer string, keep time.Duration, limit int) (deleted int, err error)
}

var _ Store = (*sqlonce.Inbox)(nil)

// Names of the table's types that users of this package need.
type (
	// Key names one event for one handler of one consumer.
	Key = sqlonce.InboxKey
	// Event is an event and where it came from.
	Event = sqlonce.InboxEvent
	// Parked is an event that waits for a person.
	Parked = sqlonce.InboxParkedEvent
)

// Cache is a faster memory of processed events in front of the table, such as Redis. It may say
// that an event was processed: then the message is acknowledged without a look at the table. It is
// never asked whether an event is new: when it does not know one, or fails, the table decides. An
// event is remembered after its commit only. The cache must forget an event before the table does,
// and be emptied when the database has lost commits in a failover.
type Cache interface {
	// Seen reports whether the event with this key, in the form of once.Key.String, was remembered.
	Seen(ctx context.Context, key string) (bool, error)
	// Remember stores it.
	Remember(ctx context.Context, key string) error
}
