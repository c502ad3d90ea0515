package inbox

import engine "github.com/ormoutbox/ormoutbox/core/inbox"

// Names of package core/inbox, so that users of this package need no other.
type (
	// Store is the table. Package sqlinbox has it in SQL, and package inboxtest in memory for
	// tests.
	Store = engine.Store
	// Cache is a faster memory of processed events in front of the table, such as Redis.
	Cache = engine.Cache
	// Key names one event for one handler of one consumer.
	Key = engine.Key
	// Event is the part of an event that the table keeps: its key and where it came from.
	Event = engine.Event
	// State is the state of an event in the table.
	State = engine.State
	// DeadEvent is an event that was given up and waits for a person.
	DeadEvent = engine.DeadEvent
	// DeadQuery selects dead events.
	DeadQuery = engine.DeadQuery
	// RedriveRequest names dead events that a person wants processed after all.
	RedriveRequest = engine.RedriveRequest
	// DiscardRequest names dead events that a person wants never processed.
	DiscardRequest = engine.DiscardRequest
	// ArchivedEvent is an event that Config.Archive gets before its row is deleted.
	ArchivedEvent = engine.ArchivedEvent
	// Observer has callbacks for each result of an Inbox.
	Observer = engine.Observer
	// Tracer has callbacks for traces.
	Tracer = engine.Tracer
	// Info describes one delivery of an event.
	Info = engine.Info
)

// States of an event, as State of an Inbox returns them.
const (
	// StateFresh: a delivery would run the handler.
	StateFresh = engine.StateFresh
	// StateProcessed: the event was processed before, or a person discarded it.
	StateProcessed = engine.StateProcessed
	// StateInProgress: another program wrote less than 15 minutes ago that it works on the event.
	StateInProgress = engine.StateInProgress
	// StateDead: the event was given up and waits for a person.
	StateDead = engine.StateDead
)

// ArchiveEvents is how many events Config.Archive gets at most in one call.
const ArchiveEvents = engine.ArchiveEvents

// Defaults of Config.
const (
	DefaultMaxAttempts     = engine.DefaultMaxAttempts
	DefaultMinAge          = engine.DefaultMinAge
	DefaultRetryPause      = engine.DefaultRetryPause
	DefaultMaxRetryPause   = engine.DefaultMaxRetryPause
	DefaultCleanupInterval = engine.DefaultCleanupInterval
	DefaultRetention       = engine.DefaultRetention
)

// Errors of package core/inbox that callers branch on with errors.Is.
var (
	// ErrInvalidMessage: the message has no event id that can be kept. Send it to a poison queue.
	ErrInvalidMessage = engine.ErrInvalidMessage
	// ErrDead: the event was given up. It is not processed until Redrive.
	ErrDead = engine.ErrDead
	// ErrInProgress: another process works on the event. Deliver the message again later.
	ErrInProgress = engine.ErrInProgress
	// ErrTransactionEnded: the handler ended the transaction of the inbox itself, and the event
	// counts as processed. Leave the end of the transaction to the inbox.
	ErrTransactionEnded = engine.ErrTransactionEnded
	// ErrAcknowledged: the message was acknowledged before its work was committed, by the handler
	// or by middleware such as InstantAck. Everything was rolled back, and the event is dead,
	// because its message does not come again.
	ErrAcknowledged = engine.ErrAcknowledged
	// ErrInvalidRequest: a request of a person lacks something, or names the key of another
	// consumer.
	ErrInvalidRequest = engine.ErrInvalidRequest
	// ErrPanicked: the handler panicked, or called runtime.Goexit. The error also wraps a
	// *core.PanicError.
	ErrPanicked = engine.ErrPanicked
	// ErrInTransaction: the context of the message carries a transaction already. Either the
	// middleware was added twice, or the Pub/Sub passes on the context of its publisher
	// (PreserveContext of gochannel).
	ErrInTransaction = engine.ErrInTransaction
)

// Final reports whether handling the same message again cannot help. For an error of an Inbox or an
// AtLeastOnce that is so if it gave the message up, whatever the error wraps. For any other error,
// err wraps ErrInvalidMessage or ErrDead, or is core.Permanent. It is the filter for
// middleware.PoisonQueueWithFilter. A message whose error is not Final may be retried.
func Final(err error) bool { return engine.Final(err) }
