package entoutbox

import "github.com/ormoutbox/ormoutbox/core"

// Names of package core that programs need most, so that they can do with one import.
type (
	// Event is a fact that the business records.
	Event = core.Event
	// EventTyper is implemented by values that know the type of the event they describe.
	EventTyper = core.EventTyper
	// Op says what a mutation did to an entity.
	Op = core.Op
	// Delivery is an event on its way to one destination.
	Delivery = core.Delivery
	// Publisher hands one event to one destination.
	Publisher = core.Publisher
	// PublisherFunc makes a Publisher of a function.
	PublisherFunc = core.PublisherFunc
	// Router is a Publisher that sends each event to the publisher of its topic.
	Router = core.Router
	// Observer is told what the outbox does, for metrics.
	Observer = core.Observer
	// Backlog says how the table stands.
	Backlog = core.Backlog
	// DeadQuery selects events that were given up.
	DeadQuery = core.DeadQuery
	// DeadEvent is an event that was given up.
	DeadEvent = core.DeadEvent
	// AdminRequest names rows a person acts on.
	AdminRequest = core.AdminRequest
	// RowID identifies one row of the table.
	RowID = core.RowID
)

// What a mutation did to an entity; see core.Op.
const (
	OpCreate = core.OpCreate
	OpUpdate = core.OpUpdate
	OpDelete = core.OpDelete
	OpUpsert = core.OpUpsert
)

// Errors to branch on with errors.Is; see package core.
var (
	ErrNoTransaction  = core.ErrNoTransaction
	ErrNoAggregateID  = core.ErrNoAggregateID
	ErrTooManyRows    = core.ErrTooManyRows
	ErrTxAborted      = core.ErrTxAborted
	ErrUntracked      = core.ErrUntracked
	ErrInvalidEvent   = core.ErrInvalidEvent
	ErrNoRoute        = core.ErrNoRoute
	ErrDuplicateEvent = core.ErrDuplicateEvent
	ErrCommitUnknown  = core.ErrCommitUnknown
	ErrNoPublisher    = core.ErrNoPublisher

	ErrRunning         = core.ErrRunning
	ErrStopped         = core.ErrStopped
	ErrShutdownTimeout = core.ErrShutdownTimeout
	ErrInvalidRequest  = core.ErrInvalidRequest
)

// NewRouter returns a publisher that sends each event to the publisher of its topic.
func NewRouter() *Router { return core.NewRouter() }

// NewEventID returns a new id for Event.ID, for callers who need to know it before Publish.
func NewEventID() string { return core.NewEventID() }

// Permanent marks an error of a publisher: the event will never succeed and is DEAD at once.
func Permanent(err error) error { return core.Permanent(err) }

// Transient marks an error of a publisher: this one event was refused and is tried again.
func Transient(err error) error { return core.Transient(err) }

// Unavailable marks an error of a publisher: the destination is out of order, which costs its
// events no attempt.
func Unavailable(err error) error { return core.Unavailable(err) }

// UnavailableForKey marks an error of a publisher: a part of the destination is out of order, which
// costs this event no attempt.
func UnavailableForKey(err error) error { return core.UnavailableForKey(err) }

// Unroutable marks an error of a publisher: nobody wants events of this topic, which is an outage
// until one was accepted.
func Unroutable(err error) error { return core.Unroutable(err) }
