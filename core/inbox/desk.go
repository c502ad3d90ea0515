package inbox

import (
	"context"
	"time"
)

// Desk shows an operator the events of all consumers that share an inbox's tables, and changes
// them. The Store of package sqlinbox is one. Every read is bounded. If the tables are not in the
// database, the errors wrap core.ErrNoTables.
type Desk interface {
	// Backlog returns every handler that is registered or has failed with an event, by consumer and
	// handler, at most 1000. It counts at most limit events of each consumer and status.
	Backlog(ctx context.Context, limit int) ([]Backlog, error)
	// ListFailed returns a page of the events that handlers have failed with. A query that makes no
	// sense is refused with an error wrapping [ErrInvalidRequest].
	ListFailed(ctx context.Context, q FailedQuery) (FailedPage, error)
	// Outcomes returns the outcome of an event at each handler, by consumer and handler, at most
	// 1000. A handler that has no row of the event has the empty Status.
	Outcomes(ctx context.Context, tenant, eventID string) ([]Outcome, error)
	// For Redrive and Discard see [Store].
	Redrive(ctx context.Context, keys []Key, actor, reason string) (changed int, err error)
	Discard(ctx context.Context, keys []Key, actor, reason string) (changed int, err error)
}

// Status is the state of an event at a handler. Empty: the table has no row of it.
type Status string

// Statuses of an event at a handler.
const (
	StatusProcessed  Status = "processed"
	StatusFailed     Status = "failed"     // will be tried again when it is delivered again
	StatusDead       Status = "dead"       // given up: waits for a person
	StatusRedriven   Status = "redriven"   // a person wants it processed: waits for its delivery
	StatusDiscarded  Status = "discarded"  // ended by a person
	StatusProcessing Status = "processing" // another program wrote that it works on the event
)

// Backlog counts the events that one handler has failed with.
type Backlog struct {
	Consumer string `json:"consumer"`
	Handler  string `json:"handler"`
	// Topic is the topic of the program that served the handler last. Empty: not known.
	Topic string `json:"topic,omitempty"`

	Failed     int `json:"failed"`
	Dead       int `json:"dead"`
	Redriven   int `json:"redriven"`
	Processing int `json:"processing"`
	// More: counting stopped at the limit.
	More bool `json:"more,omitempty"`

	// Oldest is how long ago the oldest of these events failed first, or was redriven; OldestDead
	// counts only dead events. Both are by the clock of the database. Zero: there is none.
	Oldest     time.Duration `json:"oldest"`
	OldestDead time.Duration `json:"oldest_dead"`
	// LastProcessed is when the handler last processed an event, or a person discarded one. It is
	// zero if the table has no such event.
	LastProcessed time.Time `json:"last_processed,omitzero"`
}

// FailedEvent is an event that a handler has failed with.
type FailedEvent struct {
	// DeadEvent has the last failure. An event that a person redrove or discarded has the actor and
	// the reason in Text. FailedAt is zero for an event that has not failed since.
	DeadEvent
	Status Status
}

// FailedQuery selects events that handlers have failed with.
type FailedQuery struct {
	Consumer, Handler, Tenant, EventID string // empty: all
	// Status is StatusFailed, StatusDead, StatusRedriven, StatusDiscarded or StatusProcessing. Empty:
	// all of them.
	Status Status
	After  string // FailedPage.Next of the page before, with the same query
	Limit  int    // default 100, at most 1000
}

// FailedPage is a part of a list. It is ordered by consumer. The events of a consumer are ordered
// by status, dead events first, and then by the time at which they were received.
type FailedPage struct {
	Events []FailedEvent
	// Next is FailedQuery.After of the next page. Empty: this is the last page.
	Next string
	// Truncated: the page is short, perhaps empty, because 10,000 rows of a consumer and a status
	// were examined. More events may follow: go on with Next. Truncated is never set if the query
	// has only Consumer and Status.
	Truncated bool
}

// Outcome is the outcome of an event at one handler.
type Outcome struct {
	Consumer string `json:"consumer"`
	Handler  string `json:"handler"`
	// Topic is the topic of the program that served the handler last. Empty: not known.
	Topic  string `json:"topic,omitempty"`
	Status Status `json:"status"`
	// Attempts of the event since it was new or redriven.
	Attempts int `json:"attempts"`
	// At is when the event was processed or discarded, failed last, or was redriven.
	At time.Time `json:"at,omitzero"`
	// Source is where the message was read: topic/partition/offset, or the topic alone. Empty: the
	// message did not carry it.
	Source string `json:"source,omitempty"`
	// Code and Text describe the last failure. For StatusRedriven and StatusDiscarded, Text is the
	// actor and the reason.
	Code string `json:"error_code,omitempty"`
	Text string `json:"error,omitempty"`
}
