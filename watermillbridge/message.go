package watermillbridge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/ormoutbox/ormoutbox/core"
)

// ErrNotOutboxMessage: a message lacks a field that every message of an outbox has, or a field
// cannot be read. The wrapped errors name every problem.
var ErrNotOutboxMessage = errors.New("watermillbridge: not a message of an outbox")

// NewMessage returns the message of a delivery. A Publisher sends it unless Config.Marshal is set.
// UUID is the event's id, or the UUID of the message that an OutboxPublisher got. Metadata are the
// event's headers, and its fields under the names core.HeaderEventID and so on, all as text. Fields
// that are empty or zero are left out. The payload is a copy. The message's context is ctx.
func NewMessage(ctx context.Context, d core.Delivery) *message.Message {
	md := message.Metadata(d.Metadata())
	uuid := unpack(md)
	uuid = cmp.Or(uuid, d.ID)
	// The payload is never nil, because a broker may take a missing payload for a deletion.
	msg := message.NewMessage(uuid, append(make([]byte, 0, len(d.Payload)), d.Payload...))
	msg.SetContext(ctx)
	msg.Metadata = md
	return msg
}

// NewCompactMessage is NewMessage with all fields of the event in one metadata, core.HeaderFields,
// for a broker that takes few (see core.Delivery.CompactMetadata). It is a Config.Marshal.
func NewCompactMessage(ctx context.Context, d core.Delivery) (*message.Message, error) {
	msg := NewMessage(ctx, d)
	unpacked := d
	unpacked.Headers = msg.Metadata
	msg.Metadata = unpacked.CompactMetadata()
	return msg, nil
}

// EventFromMessage reads the event from a message that was sent by a Publisher, or by a log-based
// relay with the same names. Topic is the topic from which a Watermill router consumed the message,
// else empty. Other metadata become Headers, without the names reserved for the outbox or
// Watermill. RowID is zero if the message does not name it. An error wraps ErrNotOutboxMessage: the
// event id or the event type is missing, or a field cannot be read. Payload shares its memory with
// the message.
func EventFromMessage(msg *message.Message) (core.Delivery, error) {
	if msg == nil {
		return core.Delivery{}, fmt.Errorf("%w: it is nil", ErrNotOutboxMessage)
	}
	md := message.Metadata(core.UnpackFields(msg.Metadata))
	r := reader{md: md}
	d := core.Delivery{
		Event: r.event(), KeySeq: r.number(core.HeaderKeySeq),
		Attempt: int(r.number(core.HeaderAttempt)),
	}
	d.Topic = message.SubscribeTopicFromCtx(msg.Context())
	d.Payload, d.Headers = msg.Payload, plainHeaders(md)
	d.Unordered = d.Key != "" && d.KeySeq == 0
	d.RowID = parsed(&r, core.HeaderRowID, core.ParseRowID)
	d.ReplayOf = parsed(&r, core.HeaderReplayOf, core.ParseRowID)
	if _, _, err := core.RowIDRange(d.ID); err != nil {
		r.check(core.HeaderEventID, err)
	}
	if d.Type == "" {
		r.check(core.HeaderEventType, errors.New("it is missing"))
	}
	if len(r.problems) > 0 {
		return d, fmt.Errorf("%w: %w", ErrNotOutboxMessage, errors.Join(r.problems...))
	}
	return d, nil
}

// reader reads the fields of an event from metadata and collects the problems.
type reader struct {
	md       message.Metadata
	problems []error
}

func (r *reader) check(name string, err error) {
	if err != nil {
		r.problems = append(r.problems, fmt.Errorf("metadata %s: %w", name, err))
	}
}

// parsed reads a field, which may be missing.
func parsed[T any](r *reader, name string, parse func(string) (T, error)) (v T) {
	if text := r.md[name]; text != "" {
		var err error
		v, err = parse(text)
		r.check(name, err)
	}
	return v
}

func (r *reader) number(name string) int64 {
	return parsed(r, name, func(s string) (int64, error) { return strconv.ParseInt(s, 10, 64) })
}

func (r *reader) time(name string) time.Time {
	return parsed(r, name, func(s string) (time.Time, error) { return time.Parse(time.RFC3339Nano, s) })
}

// event returns the event of the metadata, without topic, payload and headers.
func (r *reader) event() core.Event {
	return core.Event{
		ID:               r.md[core.HeaderEventID],
		Type:             r.md[core.HeaderEventType],
		AggregateType:    r.md[core.HeaderAggregateType],
		AggregateID:      r.md[core.HeaderAggregateID],
		AggregateVersion: r.number(core.HeaderAggregateVersion),
		TenantID:         r.md[core.HeaderTenantID],
		SchemaVersion:    int(r.number(core.HeaderSchemaVersion)),
		Key:              r.md[core.HeaderPartitionKey],
		OccurredAt:       r.time(core.HeaderOccurredAt),
		ContentType:      r.md[core.HeaderContentType],
	}
}
