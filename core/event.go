package core

import (
	"context"
	"maps"
	"time"

	"github.com/ormoutbox/ormoutbox/core/internal/cause"
	"github.com/ormoutbox/ormoutbox/core/internal/enum"
	"github.com/ormoutbox/ormoutbox/core/internal/textcheck"
)

// Event is a fact that the business records. Only Type is required. Its content is in Data or in
// Payload. Types, topics, tenants, keys and aggregates are valid UTF-8 without the invisible
// characters of Unicode's classes Cc, Cf, Zl and Zp, except joiners (U+200C, U+200D). Events that
// are in the table already may have them.
type Event struct {
	// ID is the identity by which consumers deduplicate: a UUID or a ULID. Empty: a UUIDv7 is
	// assigned, so a command that is carried out twice makes two events. If the ID is computed from
	// the command (a UUIDv5), the second insert is refused with ErrDuplicateEvent, whatever its
	// payload is, for as long as the row of the first is kept.
	ID string
	// Type names the kind of event, such as "order.placed". At most 128 bytes.
	Type string
	// AggregateType and AggregateID name the thing that the event happened to. At most 64 and 128
	// bytes.
	AggregateType, AggregateID string
	// AggregateVersion is the version of the aggregate after the event. 0: there is none.
	AggregateVersion int64
	// TenantID separates tenants: the same Key of two tenants orders nothing between them. At most
	// 64 bytes.
	TenantID string
	// SchemaVersion is the version of the payload's schema. 0: there is none.
	SchemaVersion int
	// Topic is the destination. Empty: Config.Routes of the type, else AggregateType, so that the
	// events of an aggregate stay in order whatever their types. Without AggregateType it is the
	// type. Order is kept only within a topic. At most 249 bytes.
	Topic string
	// Key orders events and chooses the broker's partition: events of one tenant, topic and key are
	// published one after another. Empty: AggregateType/AggregateID, or AggregateID alone if there
	// is no AggregateType. In the second case two kinds of aggregates with the same id share a key.
	// An event without any of the three is unordered. At most 255 bytes.
	Key string
	// Unordered keeps the key for the broker and skips the ordering. That saves a row lock and an
	// upsert.
	Unordered bool
	// OccurredAt is when the event happened. Zero: the time of Publish. It is saved in UTC with
	// microseconds.
	OccurredAt time.Time
	// Delay holds the event back until this long after its insert. It is allowed only with
	// Unordered or without a key, because it would hold up every later event of the key.
	Delay time.Duration
	// ContentType describes Payload. Default: Config.Codec's content type if Data was encoded, else
	// empty. At most 127 bytes.
	ContentType string
	// Headers travel with the event. Names are RFC 9110 tokens outside the reserved names (see
	// HeaderReservedPrefix). Values are valid UTF-8 without control characters. At most 64 headers
	// and 16 KiB together. Publish adds HeaderCausationID and HeaderCorrelationID inside of a handler.
	Headers map[string]string
	// Data is encoded by Config.Codec if Payload is nil. The default codec, JSON, refuses a []byte;
	// use Payload for it.
	Data any
	// Payload is published byte for byte as it was inserted. ContentType describes it. At most
	// Config.MaxPayload bytes.
	Payload []byte
	// Eager makes Publish write the event at once, with the waiting events of the transaction, and
	// return the error of the INSERT. It matters only for transactions of module pgxoutbox, which
	// otherwise write the events together with COMMIT. It is not stored.
	Eager bool

	ctx context.Context //nolint:containedctx // WithContext sets it, and Publish reads it last
}

// WithContext returns a copy of e with a context of its own. Config.Headers and Config.Codec are
// called with that context in place of the context of Publish, and cause and chain are taken from
// it. So one call of Publish can record events of several requests, each with its own trace. The
// statement itself runs with the context
// of Publish.
func (e Event) WithContext(ctx context.Context) Event {
	e.ctx = ctx
	return e
}

// EventTyper is implemented by values that have the type of the event they describe.
type EventTyper interface{ EventType() string }

// Delivery is an event on its way to one destination. A Publisher gets it.
type Delivery struct {
	Event
	// RowID identifies this row. It is the same for every attempt, and another one for a replay.
	// Give it to a broker that deduplicates.
	RowID RowID
	// KeySeq is the position of the event in its key. It starts at a reading of the clock, and has
	// no gaps while the key exists. After a failover of PostgreSQL it goes on at the clock. 0: the
	// event is unordered.
	KeySeq int64
	// Attempt is the number of refusals by the destination so far, plus one.
	Attempt int
	// ReplayOf is the row that this row repeats at a person's request. Zero: this row repeats none.
	// Relays publish such rows with low priority.
	ReplayOf RowID
}

// Op is the operation that changed an entity.
type Op uint8

// Operations on an entity. An upsert is OpUpsert and never OpCreate, because some databases do not
// report whether the row existed.
const (
	OpCreate Op = iota + 1
	OpUpdate
	OpDelete
	OpUpsert
)

var opNames = []string{
	OpCreate: "create", OpUpdate: "update", OpDelete: "delete", OpUpsert: "upsert",
}

// String returns create, update, delete or upsert.
func (o Op) String() string { return enum.Name(opNames, o, "op") }

// Limits on the parts of an event, in bytes.
const (
	maxType        = 128
	maxAggType     = 64
	maxAggID       = 128
	maxTenant      = 64
	maxTopic       = 249
	maxKey         = 255
	maxContentType = 127
	maxHeaders     = 64
	maxHeaderBytes = 16 << 10
)

// maxDelay keeps every due time in the range that all databases can represent.
const maxDelay = 10 * 365 * 24 * time.Hour

func checkText(bad func(string, ...any), name, s string, limit int, required bool) {
	if p := textcheck.NameProblem(s, limit, required); p != "" {
		bad("%s %s", name, p)
	}
}

func mergeHeaders(bad func(string, ...any), own, extra map[string]string) map[string]string {
	if len(own)+len(extra) == 0 {
		return nil
	}
	all := make(map[string]string, len(own)+len(extra))
	maps.Copy(all, extra)
	maps.Copy(all, own) // the event's own headers win
	if len(all) > maxHeaders {
		bad("%d headers, more than %d", len(all), maxHeaders)
	}
	size := 0
	for k, v := range all {
		size += len(k) + len(v)
		if err := CheckHeader(k, v); err != nil {
			bad("%w", err)
		}
	}
	if size > maxHeaderBytes {
		bad("headers have %d bytes together, more than %d", size, maxHeaderBytes)
	}
	return all
}

// withCause adds the cause: the message, effect or command whose handler publishes the event. What
// the user set wins, and the limits hold for the headers of the user: an event must not be refused
// because a handler publishes it. headers are the caller's own.
func withCause(headers map[string]string, by cause.Cause) map[string]string {
	for _, h := range [...]struct{ name, value string }{
		{HeaderCausationID, by.ID}, {HeaderCorrelationID, by.Chain},
	} {
		if _, set := headers[h.name]; set || h.value == "" {
			continue
		}
		if headers == nil {
			headers = make(map[string]string, 2)
		}
		headers[h.name] = h.value
	}
	return headers
}
