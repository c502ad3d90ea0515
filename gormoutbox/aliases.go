package gormoutbox

import "github.com/ormoutbox/ormoutbox/core"

// The names of package core that programs need most, so that they can do with one import.
type (
	Event         = core.Event
	EventTyper    = core.EventTyper
	Recorder      = core.Recorder
	Op            = core.Op
	Delivery      = core.Delivery
	Publisher     = core.Publisher
	PublisherFunc = core.PublisherFunc
	Router        = core.Router
	Observer      = core.Observer
	Backlog       = core.Backlog
	DeadQuery     = core.DeadQuery
	DeadEvent     = core.DeadEvent
	AdminRequest  = core.AdminRequest
	RowID         = core.RowID
)

// What a statement did to a model; see core.Op.
const (
	OpCreate = core.OpCreate
	OpUpdate = core.OpUpdate
	OpDelete = core.OpDelete
	OpUpsert = core.OpUpsert
)

// Errors to branch on with errors.Is; see package core.
var (
	ErrNoTransaction  = core.ErrNoTransaction
	ErrTxAborted      = core.ErrTxAborted
	ErrUntracked      = core.ErrUntracked
	ErrInvalidEvent   = core.ErrInvalidEvent
	ErrNoRoute        = core.ErrNoRoute
	ErrDuplicateEvent = core.ErrDuplicateEvent
	ErrCommitUnknown  = core.ErrCommitUnknown
	ErrNoPublisher    = core.ErrNoPublisher
)

// NewRouter returns a publisher that sends each event to the publisher of its topic.
func NewRouter() *Router { return core.NewRouter() }

// NewEventID returns a new id for Event.ID, for callers who need to know it before Publish.
func NewEventID() string { return core.NewEventID() }

// Permanent marks an error of a publisher: the event will never succeed and is DEAD at once.
func Permanent(err error) error { return core.Permanent(err) }

// Transient marks an error of a publisher: this one event was refused and is tried again.
func Transient(err error) error { return core.Transient(err) }

// Unavailable marks an error of a publisher: the destination is out of order, which costs its events no attempt.
func Unavailable(err error) error { return core.Unavailable(err) }
