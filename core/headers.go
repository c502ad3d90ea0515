package core

// Names under which a bridge sends the fields of a Delivery as message metadata and under which an inbox finds them. They are
// part of the public contract: a log-based relay (Debezium) is configured to send the same names. A user's header must not
// have one of these names, nor start with HeaderReservedPrefix.
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

	// HeaderReservedPrefix starts every further name this project may ever use.
	HeaderReservedPrefix = "outbox_"
)

func reservedHeader(name string) bool {
	switch name {
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
