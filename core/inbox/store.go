package inbox

import (
	"context"
	"fmt"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

// Store keeps the events that the handlers of consumers have processed, and the newest event of
// each key. Package sqlinbox implements it in SQL; package inboxtest of module inbox has one in
// memory for tests. Its methods are called by many goroutines at once.
//
// Begin, BeginBatch and Advance work in the transaction of the handler's effects, which begins with
// them, commits with the effects, and is rolled back after any error of theirs. The others are
// short transactions of their own.
type Store interface {
	// Begin writes the event as processed in tx, and says StateFresh and which attempt this is; or
	// it says what was there. While another transaction works on the same event it waits for the
	// end of that.
	Begin(ctx context.Context, tx core.Tx, e Event) (state State, attempt int, err error)
	// BeginBatch does for many events of one consumer and handler what Begin does for one. A second
	// copy of an event in the batch is StateProcessed.
	BeginBatch(ctx context.Context, tx core.Tx, events []Event) ([]State, error)
	// Advance moves the newest event that the handler has processed of the event's tenant, topic
	// and key up to this one, in tx, and reports whether it was newer. It waits for other
	// transactions that do so. An event without a key or a KeySeq is always newer.
	Advance(ctx context.Context, tx core.Tx, e Event) (newer bool, err error)

	// Fail records a failure, after the transaction of the handler was rolled back: it counts the
	// attempt and writes that the event failed or is dead, unless the event has been processed
	// meanwhile, by another copy. It returns what the row says then: StateProcessed, StateDead, or
	// 0 for failed.
	Fail(ctx context.Context, f Failure) (state State, attempts int, err error)
	// ListDead returns dead events, those first that were received first.
	ListDead(ctx context.Context, q DeadQuery) ([]DeadEvent, error)
	// Redrive lets dead events be processed when they are delivered again, with fresh attempts. The
	// row keeps the actor and the reason until then. It returns how many changed: the others are
	// not dead.
	Redrive(ctx context.Context, keys []Key, actor, reason string) (changed int, err error)
	// Cleanup deletes at most limit events that the consumer processed longer than keep ago. It
	// returns how many. Rows of failed and dead events stay.
	Cleanup(ctx context.Context, consumer string, keep time.Duration, limit int) (deleted int, err error)
	// CleanupKeys deletes at most limit keys of which the consumer processed the newest event
	// longer than keep ago. It returns how many.
	CleanupKeys(ctx context.Context, consumer string, keep time.Duration, limit int) (deleted int, err error)
}

// State is the state of an event in a Store.
type State uint8

// States of an event.
const (
	// StateFresh: the row says processed now, as soon as the transaction commits.
	StateFresh State = iota + 1
	// StateProcessed: done before.
	StateProcessed
	// StateInProgress: a row that says so was written by something other than Begin, less than 15
	// minutes ago.
	StateInProgress
	// StateDead: given up; it waits for a person.
	StateDead
)

// String returns the name used in logs and metrics.
func (s State) String() string {
	switch s {
	case StateFresh:
		return "fresh"
	case StateProcessed:
		return "processed"
	case StateInProgress:
		return "in_progress"
	case StateDead:
		return "dead"
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// Failure says how a handler failed.
type Failure struct {
	Event Event
	// Code is short and stable, at most 64 bytes. An error with a method InboxCode() string names
	// it itself.
	Code string
	Text string // without credentials, at most 2 KiB of it are kept
	// Free spends no attempt.
	Free bool
	// Dead gives the event up at once. Else it is given up when it has failed MaxAttempts times (0
	// is no limit), the first time, also for free, at least MinAge ago.
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
	Consumer string     // required
	Handler  string     // empty: all
	EventID  string     // empty: all; else only this event of Tenant
	Tenant   string     // looked at with EventID
	Limit    int        // default 100, at most 1000
	After    *DeadEvent // the last one of the page before
}

// Cache is a faster memory of processed events in front of the table, such as Redis. If it knows an
// event, the message is acknowledged without a query. If it does not know the event, or fails, the
// table decides. An event is remembered after its commit only. The cache must forget an event
// before the table does, and be emptied when the database has lost commits in a failover.
type Cache interface {
	// Seen reports whether the event with this key, in the form of once.Key.String, was remembered.
	Seen(ctx context.Context, key string) (bool, error)
	// Remember stores it.
	Remember(ctx context.Context, key string) error
}
