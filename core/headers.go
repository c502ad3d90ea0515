package core

import (
	"fmt"

	"github.com/ormoutbox/ormoutbox/core/internal/errtext"
	"github.com/ormoutbox/ormoutbox/core/internal/textcheck"
)

const maxHeaderName = 128

// Metadata names under which a bridge sends the fields of a Delivery, and under which an inbox
// finds them. The names are part of the public contract: a log-based relay such as Debezium is
// configured to send the same names. A user's header must not have one of these names, except for
// HeaderCausationID and HeaderCorrelationID, nor start with HeaderReservedPrefix.
const (
	HeaderEventID          = "event_id"
	HeaderEventType        = "event_type"
	HeaderSchemaVersion    = "schema_version"
	HeaderAggregateType    = "aggregate_type"
	HeaderAggregateID      = "aggregate_id"
	HeaderAggregateVersion = "aggregate_version"
	HeaderTenantID         = "tenant_id"
	HeaderPartitionKey     = "partition_key"
	HeaderKeySeq           = "key_seq"
	HeaderOccurredAt       = "occurred_at" // RFC 3339 with nanoseconds, UTC
	HeaderContentType      = "content-type"
	HeaderAttempt          = "outbox_attempt"
	HeaderReplayOf         = "outbox_replay_of"
	// HeaderFirstKeySeq is set on an event with a key that was redriven to the end of its key under
	// policy SkipDead, or that was replayed. Its value is the event's first key_seq, by which a
	// consumer can compare the age of its state.
	HeaderFirstKeySeq = "outbox_first_key_seq"
	// HeaderEditOf is set on an event whose content a person changed after it was dead. Its value is
	// the id of the dead row in whose place it stands.
	HeaderEditOf = "outbox_edit_of"
	// HeaderErased is set on an event whose content a person erased. Its value is the time, in RFC
	// 3339. Its payload is empty.
	HeaderErased = "outbox_erased"
	HeaderRowID  = "outbox_row_id" // the id for a broker that deduplicates, see Delivery.RowID

	// HeaderCausationID is the id of the message, effect or command whose handler published the
	// event. HeaderCorrelationID is that message's correlation id, or else its event id: it is the
	// same along a chain. Publish sets both inside of a handler, unless the event has them. An
	// event that was published outside of any handler has neither, and begins a chain with its own
	// id.
	HeaderCausationID   = "causation_id"
	HeaderCorrelationID = "correlation_id"

	// HeaderSource is set by a subscriber to the place where it read the message. The value has the
	// form topic/partition/offset. No publisher of an outbox sends it.
	HeaderSource = "outbox_source"

	// HeaderMessage is written by the Watermill bridge. It carries, as JSON, the parts of a message
	// that do not fit into a header. It is the only name with HeaderReservedPrefix that an event
	// may have.
	HeaderMessage = "outbox_message"

	// HeaderFields is written by Delivery.CompactMetadata. It carries the fields of the event, as a
	// JSON object of the names above, for a broker that takes few headers.
	HeaderFields = "outbox_fields"

	// HeaderReservedPrefix starts every further name that this project may use.
	HeaderReservedPrefix = "outbox_"
)

// CheckHeader returns an error if an event cannot carry a header: its name is reserved or is not an
// RFC 9110 token of at most 128 bytes, or its value is not valid UTF-8 or has control characters.
func CheckHeader(name, value string) error {
	switch {
	case !token(name):
		return fmt.Errorf("header name %q is not a token of at most %d bytes", errtext.Clip(name, 64), maxHeaderName)
	case reservedHeader(name):
		return fmt.Errorf("header name %q is reserved", errtext.Clip(name, 64))
	}
	if p := textcheck.Problem(value, len(value), false); p != "" {
		return fmt.Errorf("value of header %q %s", errtext.Clip(name, 64), p)
	}
	return nil
}

func reservedHeader(name string) bool {
	switch name {
	case HeaderMessage:
		return false
	case HeaderEventID, HeaderEventType, HeaderSchemaVersion, HeaderAggregateType, HeaderAggregateID,
		HeaderAggregateVersion, HeaderTenantID, HeaderPartitionKey, HeaderKeySeq, HeaderOccurredAt, HeaderContentType:
		return true
	}
	// Watermill's Kafka marshaler keeps the message id under its own prefix.
	return hasPrefixFold(name, HeaderReservedPrefix) || hasPrefixFold(name, "_watermill_")
}

func hasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && equalFoldASCII(s[:len(prefix)], prefix)
}

func equalFoldASCII(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range len(a) {
		if lower(a[i]) != lower(b[i]) {
			return false
		}
	}
	return true
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

// token reports whether s is an RFC 9110 token.
func token(s string) bool {
	if s == "" || len(s) > maxHeaderName {
		return false
	}
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case c == '!', c == '#', c == '$', c == '%', c == '&', c == '\'', c == '*', c == '+', c == '-', c == '.',
			c == '^', c == '_', c == '`', c == '|', c == '~':
		default:
			return false
		}
	}
	return true
}
