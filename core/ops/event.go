package ops

import (
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/enum"
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

	// KeyID is the key that orders the event. It is zero for an unordered event, and for a dead
	// event that has left its key: see core.SkipDead.
	KeyID core.KeyID `json:"-"`

	Status     Status `json:"status"`
	Attempts   int    `json:"attempts"`              // refusals that were counted
	LostClaims int    `json:"lost_claims,omitempty"` // processes that disappeared while they held it
	ClaimedBy  string `json:"claimed_by,omitempty"`  // the last process that claimed it
	// Path is how that process got it: straight from its commit, or from the table. Empty: no process
	// has claimed it since it was inserted or redriven.
	Path        core.Path `json:"path,omitempty"`
	LeaseUntil  time.Time `json:"lease_until,omitzero"` // how long that process holds it
	AvailableAt time.Time `json:"available_at"`         // when it is due
	OccurredAt  time.Time `json:"occurred_at"`
	CreatedAt   time.Time `json:"created_at"`
	DoneAt      time.Time `json:"done_at,omitzero"` // when it was done or discarded

	ErrorCode string `json:"error_code,omitempty"` // class of the last failure, or a special code
	Error     string `json:"error,omitempty"`      // text of the last failure, without credentials
	// ErrorGroup is the name of its group that the relay stored with the last failure.
	ErrorGroup string `json:"error_group,omitempty"`

	// Receipt is the place at the broker, such as topic/partition@offset, if the publisher returns
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

// redriven is the Sight of an event that was redriven, and was not refused since.
const redriven core.Sight = 1

// Sight returns a value by which a later call can notice that the event has changed since it was
// read. For a dead event it is a hash of its last life: a redrive begins a new one, at another time
// of the database's clock. It is 0 for an event that waits, however often it was refused, but 1 if
// it waits because it was redriven.
func (e *Event) Sight() core.Sight {
	if e.Status == StatusRetry && e.Attempts == 0 && e.LostClaims == 0 { // a refusal counts one
		return redriven
	}
	if e.Status != StatusDead {
		return 0
	}
	h := fnv.New32a()
	_, _ = fmt.Fprintf(h, "%d/%d/%d/%s", e.AvailableAt.UnixMicro(), e.Attempts, e.LostClaims, e.ClaimedBy)
	return core.Sight(max(uint32(redriven)+1, h.Sum32()))
}

// Unchanged returns the ids of the rows that are as they were seen, in their order. now has the
// rows that are there. It is for authors of a core.Repository.
func Unchanged(now []Event, seen map[core.RowID]core.Sight) (ids []core.RowID) {
	for i := range now {
		e := &now[i]
		if s, known := seen[e.ID]; !known || s == e.Sight() && (e.Status == StatusDead || e.Status.Open()) {
			ids = append(ids, e.ID)
		}
	}
	return ids
}

// Content is the part of an event for its consumers.
type Content struct {
	ContentType string            `json:"content_type,omitempty"`
	Headers     map[string]string `json:"headers,omitempty"`
	Payload     []byte            `json:"payload"`
	// Damage names the part that cannot be read. Such an event becomes DEAD. Empty: the event is
	// intact.
	Damage string `json:"damage,omitempty"`
}

// Details is all about one event.
type Details struct {
	Event
	Content Content `json:"content"`

	// Failures are the last refusals of the event that counted, oldest first, at most MaxAttempts.
	// They stay when the event is done, discarded or redriven. Event.Error is the last failure of
	// any kind, and gone when the event is done.
	Failures []Attempt `json:"failures,omitempty"`

	// Ahead and Behind are the events next to this one in its key that are open or dead, in the
	// order of the key, at most Neighbours on each side. Events of the key that have ended are in
	// no index and so are not here.
	Ahead  []Event `json:"ahead,omitempty"`
	Behind []Event `json:"behind,omitempty"`

	// Audit has the manual actions on the event, oldest first.
	Audit []AuditEntry `json:"audit,omitempty"`
}

// MaxAttempts is how many failed attempts of an event are shown.
const MaxAttempts = 10

// Attempt is one publish of an event that its destination refused, and that counted.
type Attempt struct {
	At time.Time `json:"at"` // by the database's clock, when it was written down
	// Attempt is its number. A redrive begins again at 1.
	Attempt int       `json:"attempt"`
	Path    core.Path `json:"path,omitempty"`  // how the relay had got the event; empty: not known
	Node    string    `json:"node"`            // the relay, up to 100 bytes of its name
	Code    string    `json:"code,omitempty"`  // as Event.ErrorCode
	Error   string    `json:"error,omitempty"` // up to 300 bytes of the text, without credentials
}

// AuditEntry is one manual action on an event.
type AuditEntry struct {
	At     time.Time `json:"at"`
	Action string    `json:"action"` // "redrive", "discard", "replay" or AuditEdit
	Actor  string    `json:"actor"`
	Reason string    `json:"reason"`
	// NewID is the row that took the place of this one, or that replays it. Zero: none.
	NewID core.RowID `json:"new_id,omitzero"`
	// Detail is the content of the change, such as the difference of AuditEdit. It has parts of
	// payloads and headers, so it is as confidential as Content. Empty: nothing.
	Detail string `json:"detail,omitempty"`
}

// Fingerprint names the failure of an event: a hash of its error code, topic, type, and the text of
// its error without numbers, ids and quoted texts. Events that failed alike have the same one. It
// is empty if the event has no error.
func (e *Event) Fingerprint() string {
	if e.ErrorCode == "" && e.Error == "" {
		return ""
	}
	return e.ErrorGroup
}

// Status is the state of an event in the table.
type Status uint8

// Statuses, as the column status has them. A claimed event has no status of its own: its
// Event.LeaseUntil is in the future.
const (
	StatusNew       Status = iota // not yet accepted by its destination
	StatusDone                    // accepted, or left to a reader of the log: see Event.ByLog
	StatusRetry                   // refused; it will be tried again
	StatusDead                    // given up
	StatusDiscarded               // ended by a person
)

var statusNames = []string{"new", "done", "retry", "dead", "discarded"}

// String returns the name of the status in lower case.
func (s Status) String() string { return enum.Name(statusNames, s, "status") }

// Open reports whether the event is still to be published.
func (s Status) Open() bool { return s == StatusNew || s == StatusRetry }

// MarshalText implements encoding.TextMarshaler.
func (s Status) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Status) UnmarshalText(text []byte) error {
	v, err := ParseStatus(string(text))
	if err == nil {
		*s = v
	}
	return err
}

// ParseStatus returns the status with that name.
func ParseStatus(name string) (Status, error) {
	if i := slices.Index(statusNames, name); i >= 0 {
		return Status(i), nil
	}
	return 0, fmt.Errorf("ops: %.32q is not a status: use one of %v", name, statusNames)
}
