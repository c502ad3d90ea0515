package inbox

import (
	"context"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/enum"
)

// Store keeps the events that the handlers of consumers have processed, and the newest event of
// each key. Package sqlinbox implements it in SQL; package inboxtest has one in memory for tests.
// Many goroutines call its methods at once.
//
// Begin, BeginBatch and Advance work in the transaction of the handler's effects. The transaction
// begins with them and commits with the effects. If one of them fails, the transaction is rolled
// back. The other methods run short transactions of their own.
type Store interface {
	// Register lists the handler of a consumer, in a transaction of its own, before the first event
	// of the handler begins in a process. It remembers for a week that r.Program serves the handler
	// (an empty Program is not remembered), and returns the other programs that do.
	Register(ctx context.Context, r Registration) (others []Registration, err error)
	// Begin writes the event as processed in tx, and returns StateFresh and the number of the
	// attempt. If there was a row already, it returns the state of the row. While another
	// transaction works on the same event, Begin waits until that transaction has ended.
	Begin(ctx context.Context, tx core.Tx, e Event) (state State, attempt int, err error)
	// BeginBatch is Begin for many events of one consumer and handler. A further copy of an event
	// that is fresh in the batch is StateProcessed, because it commits with the first. A copy of
	// any other event has the state of the first.
	BeginBatch(ctx context.Context, tx core.Tx, events []Event) ([]State, error)
	// Advance compares the event with the newest one that the handler has processed of the same
	// tenant, topic and key, in tx. If the event is newer, Advance records it as the newest and
	// returns true. It waits for other transactions that do the same. An event without a key or a
	// KeySeq is always newer.
	Advance(ctx context.Context, tx core.Tx, e Event) (newer bool, err error)

	// Fail records a failure, after the transaction of the handler was rolled back. It counts the
	// attempt and writes that the event failed or is dead, unless another copy has processed the
	// event meanwhile. It returns the new state of the row: StateProcessed, StateDead, or 0 for
	// failed.
	Fail(ctx context.Context, f Failure) (state State, attempts int, err error)
	// ListDead returns dead events. The events that were received first come first.
	ListDead(ctx context.Context, q DeadQuery) ([]DeadEvent, error)
	// Redrive lets dead events be processed, with fresh attempts, when they are delivered again.
	// The row keeps the actor and the reason until then. It returns how many events changed; the
	// others were not dead.
	Redrive(ctx context.Context, keys []Key, actor, reason string) (changed int, err error)
	// Discard ends dead events: from then on they are StateProcessed, and Redrive does not change
	// them. The store keeps the actor and the reason until Cleanup deletes the events. It returns
	// how many events changed; the others were not dead.
	Discard(ctx context.Context, keys []Key, actor, reason string) (changed int, err error)
	// Cleanup deletes at most limit events that the consumer processed, or a person discarded,
	// longer than keep ago. It returns how many it deleted. Rows of failed and dead events stay.
	Cleanup(ctx context.Context, consumer string, keep time.Duration, limit int) (deleted int, err error)
	// CleanupKeys deletes at most limit keys whose newest event the consumer processed longer than
	// keep ago. It returns how many it deleted.
	CleanupKeys(ctx context.Context, consumer string, keep time.Duration, limit int) (deleted int, err error)
}

// Registration records which program serves a handler.
type Registration struct {
	Consumer, Handler string
	Program           string // the path of its main package
	Topic             string // the topic that it reads
}

// State is the state of an event in a Store.
type State uint8

// States of an event.
const (
	// StateFresh: the event is new. It counts as processed as soon as the transaction commits.
	StateFresh State = iota + 1
	// StateProcessed: the event was processed before, or a person discarded it.
	StateProcessed
	// StateInProgress: another program, not Begin, wrote less than 15 minutes ago that it works on
	// the event.
	StateInProgress
	// StateDead: the event was given up and waits for a person.
	StateDead
)

var stateNames = []string{
	StateFresh: "fresh", StateProcessed: "processed", StateInProgress: "in_progress", StateDead: "dead",
}

// String returns the name used in logs and metrics.
func (s State) String() string { return enum.Name(stateNames, s, "state") }

// Failure describes a handler's failure.
type Failure struct {
	Event Event
	// Code is short and stable, at most 64 bytes. An error with a method InboxCode() string names
	// its own code.
	Code string
	Text string // without credentials; the Store keeps at most 2 KiB of it
	// Free means that the failure spends no attempt.
	Free bool
	// Dead gives the event up at once. Otherwise the event is given up when it has failed
	// MaxAttempts times (0 is no limit) and its first failure, which may have been Free, was at
	// least MinAge ago.
	Dead        bool
	MaxAttempts int
	MinAge      time.Duration
}

// DeadEvent is an event that was given up and waits for a person.
type DeadEvent struct {
	Event
	Attempts   int
	Code, Text string    // of the last failure
	ReceivedAt time.Time // when it failed first, or was redriven
	FailedAt   time.Time
}

// DeadQuery selects dead events.
type DeadQuery struct {
	Consumer string     // required by a Store; Inbox.ListDead fills it in
	Handler  string     // empty: all
	EventID  string     // empty: all; else only this event of Tenant
	Tenant   string     // used only with EventID
	Limit    int        // default 100, at most 1000
	After    *DeadEvent // the last event of the page before
}

// Cache is a faster memory of processed events in front of the table, such as Redis. If it has an
// event, the message is acknowledged without a query. If it does not have the event, or fails, the
// table decides. An event is added only after its commit, and its row stays processed until it is
// deleted. So an entry is wrong only if it outlives its row; a message is then acknowledged, and
// not processed. The cache must forget an event before the table does ([Config.Retention]), and
// must be emptied after a restore of the database or a failover that lost commits.
//
// Discard leaves the cache alone, because an entry of a discarded event is right. Redrive calls
// Forget of the cache of its own Inbox. If processes do not share one cache, another
// process may still have an entry for the event, for at most as long as its cache keeps entries.
type Cache interface {
	// Seen reports whether the event with this key, in the form of once.Key.String, was remembered.
	Seen(ctx context.Context, key string) (bool, error)
	// Remember stores the key.
	Remember(ctx context.Context, key string) error
	// Forget deletes the keys, in the same form. Keys that were not remembered are no error.
	Forget(ctx context.Context, keys ...string) error
}
