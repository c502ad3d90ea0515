package inbox

import (
	"context"

	engine "github.com/ormoutbox/ormoutbox/core/inbox"
)

// Names of package core/inbox that users of this package need.
type (
	// Store is the table. Package sqlinbox has it in SQL, and package inboxtest in memory for
	// tests.
	Store = engine.Store
	// Key names one event for one handler of one consumer.
	Key = engine.Key
	// Event is an event and where it came from.
	Event = engine.Event
	// Parked is an event that waits for a person.
	Parked = engine.DeadEvent
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
