package ops

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/cause"
)

// Filter selects events. An event has to meet every field that is set. The zero value selects all
// events.
//
// These fields are served by an index: EventID; Cause; Statuses, if it has only StatusNew,
// StatusRetry and StatusDead; Key; Topic of open events without a key; and CreatedFrom and
// CreatedBefore for ids that begin with their time, such as this project's ids, other UUIDv7s and
// ULIDs. Every other field is compared row by row, for at most MaxLook rows in one call.
type Filter struct {
	Statuses      []Status `json:"statuses,omitempty"` // one of them
	EventID       string   `json:"event_id,omitempty"`
	Type          string   `json:"type,omitempty"`
	Topic         string   `json:"topic,omitempty"`
	TenantID      string   `json:"tenant_id,omitempty"`
	AggregateType string   `json:"aggregate_type,omitempty"`
	AggregateID   string   `json:"aggregate_id,omitempty"`
	// Key needs Topic. It names the key of TenantID, or of no tenant if TenantID is empty.
	Key         string `json:"key,omitempty"`
	ErrorCode   string `json:"error_code,omitempty"`
	Fingerprint string `json:"fingerprint,omitempty"` // see Event.Fingerprint
	// Cause selects direct consequences of the event, the effect or the command with that id: see
	// Event.CausationID. It is compared as it is written.
	Cause string `json:"cause,omitempty"`
	// CreatedFrom and CreatedBefore are the first time and the time after the last one.
	CreatedFrom   time.Time `json:"created_from,omitzero"`
	CreatedBefore time.Time `json:"created_before,omitzero"`
}

// invalid returns an error that wraps core.ErrInvalidRequest.
func invalid(format string, args ...any) error {
	return &core.FieldError{Err: core.ErrInvalidRequest, Format: format, Args: args}
}

// check refuses contradictory filters, and spells EventID as it is stored.
func (f *Filter) check() error {
	for _, s := range f.Statuses {
		if s > StatusDiscarded {
			return invalid("%s is no status", s)
		}
	}
	if f.EventID != "" {
		if _, _, err := core.RowIDRange(f.EventID); err != nil {
			return fmt.Errorf("%w: %w", core.ErrInvalidRequest, err)
		}
		f.EventID = canonicalID(f.EventID)
	}
	if f.Cause != "" && !cause.Fits(f.Cause) {
		return invalid("the cause is no id: it has at most %d bytes, and no control characters", cause.Limit)
	}
	if f.Key != "" && f.Topic == "" {
		return invalid("a filter with a key needs the topic too, because a key belongs to a topic")
	}
	if !f.CreatedFrom.IsZero() && !f.CreatedBefore.IsZero() && !f.CreatedFrom.Before(f.CreatedBefore) {
		return invalid("the filter ends before it begins: it selects events from %s on, created before %s",
			f.CreatedFrom.UTC().Format(time.RFC3339), f.CreatedBefore.UTC().Format(time.RFC3339))
	}
	return nil
}

// Has reports whether the filter selects events with that status.
func (f *Filter) Has(s Status) bool { return len(f.Statuses) == 0 || slices.Contains(f.Statuses, s) }

// Match reports whether the filter selects the event. It is for implementations of Store.
func (f *Filter) Match(e *Event) bool {
	is := func(want, is string) bool { return want == "" || want == is }
	return f.Has(e.Status) && is(canonicalID(f.EventID), e.EventID) && is(f.Type, e.Type) && is(f.Topic, e.Topic) &&
		(is(f.TenantID, e.TenantID) && (f.Key == "" || f.TenantID == e.TenantID)) && is(f.Key, e.Key) &&
		is(f.AggregateType, e.AggregateType) && is(f.AggregateID, e.AggregateID) && is(f.ErrorCode, e.ErrorCode) &&
		is(f.Cause, e.CausationID) &&
		(f.CreatedFrom.IsZero() || !e.CreatedAt.Before(f.CreatedFrom)) &&
		(f.CreatedBefore.IsZero() || e.CreatedAt.Before(f.CreatedBefore)) &&
		(f.Fingerprint == "" || e.Fingerprint() == f.Fingerprint)
}

// canonicalID returns the spelling under which an event id is stored: lower case for a UUID, upper
// case for a ULID.
func canonicalID(eventID string) string {
	if len(eventID) == 26 {
		return strings.ToUpper(eventID)
	}
	return strings.ToLower(eventID)
}
