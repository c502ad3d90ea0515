package ops

import (
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

// Event is one row of the table: one event for one destination, without its content. Times that do
// not apply are zero.
type Event struct {
	ID               core.RowID `json:"id"` // of the row
	EventID          string     `json:"event_id"`
	Type             string     `json:"type"`
	SchemaVersion    int        `json:"schema_version,omitempty"`
	Topic            string     `json:"topic"`
	TenantID         string     `json:"tenant_id,omitempty"`
	Key              string     `json:"key,omitempty"`
	KeySeq           int64      `json:"key_seq,omitempty"` // its number within its key; 0: unordered
	AggregateType    string     `json:"aggregate_type,omitempty"`
	AggregateID      string     `json:"aggregate_id,omitempty"`
	AggregateVersion int64      `json:"aggregate_version,omitempty"`

	// KeyID is the key that orders the event. It is zero for an unordered event, and for one that
	// died under core.SkipDead and so has left its key.
	KeyID core.KeyID `json:"-"`

	Status      Status    `json:"status"`
	Attempts    int       `json:"attempts"`              // refusals that were counted
	LostClaims  int       `json:"lost_claims,omitempty"` // processes that disappeared while they held it
	ClaimedBy   string    `json:"claimed_by,omitempty"`  // the last process that claimed it
	LeaseUntil  time.Time `json:"lease_until,omitzero"`  // how long that process holds it
	AvailableAt time.Time `json:"available_at"`          // when it is due
	OccurredAt  time.Time `json:"occurred_at"`
	CreatedAt   time.Time `json:"created_at"`
	DoneAt      time.Time `json:"done_at,omitzero"` // when it was done or discarded

	ErrorCode string `json:"error_code,omitempty"` // class of the last failure, or a special code
	Error     string `json:"error,omitempty"`      // text of the last failure, without credentials
	// ErrorGroup is the name of its group that the relay stored with the last failure.
	ErrorGroup string `json:"error_group,omitempty"`

	// Receipt is the place at the broker, such as topic/partition@offset, if the publisher tells
	// it.
	Receipt string `json:"receipt,omitempty"`
	// CausationID is core.HeaderCausationID of the event. Empty: it was published outside of a
	// handler.
	CausationID string `json:"causation_id,omitempty"`
	// ReplayOf is the row that this row publishes again. Zero: it is no replay.
	ReplayOf core.RowID `json:"replay_of,omitzero"`

	// ReadAt is the time at which the row was read.
	ReadAt time.Time `json:"read_at"`
}

// Leased reports whether a process held the event when it was read.
func (e *Event) Leased() bool { return e.Status.Open() && e.LeaseUntil.After(e.ReadAt) }

// ByLog reports whether the event was inserted for a program that reads the database's log, see
// core.Config.RelayedByLog. It is StatusDone, and whether it is published is not known.
func (e *Event) ByLog() bool { return e.Status == StatusDone && e.ClaimedBy == core.LogReader }

// Content is what an event carries to its consumers.
type Content struct {
	ContentType string            `json:"content_type,omitempty"`
	Headers     map[string]string `json:"headers,omitempty"`
	Payload     []byte            `json:"payload"`
	// Damage says which part cannot be read. Such an event becomes DEAD. Empty: none.
	Damage string `json:"damage,omitempty"`
}

// Details is all about one event.
type Details struct {
	Event
	Content Content `json:"content"`

	// Ahead and Behind are the events next to this one in its key that are open or dead, in the
	// order of the key, at most Neighbours on each side. Events of the key that have ended are in
	// no index and so are not here.
	Ahead  []Event `json:"ahead,omitempty"`
	Behind []Event `json:"behind,omitempty"`

	// Audit is what people did to the event, oldest first.
	Audit []AuditEntry `json:"audit,omitempty"`
}

// AuditEntry is one manual action on an event.
type AuditEntry struct {
	At     time.Time `json:"at"`
	Action string    `json:"action"` // "redrive", "discard" or "replay"
	Actor  string    `json:"actor"`
	Reason string    `json:"reason"`
	// NewID is the row that took the place of this one at the end of its key, or that replays it.
	// Zero: none.
	NewID core.RowID `json:"new_id,omitzero"`
}
