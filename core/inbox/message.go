package inbox

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/cloudevents"
	"github.com/ormoutbox/ormoutbox/core/internal/cause"
	"github.com/ormoutbox/ormoutbox/core/internal/errtext"
	"github.com/ormoutbox/ormoutbox/core/internal/textcheck"
)

// Message is a message that a consumer got from its broker. For events that our outbox published,
// Headers are enough, in the form of Metadata or CompactMetadata of core.Delivery: every other field
// that is empty is read from them.
type Message struct {
	// ID is the identity of the event, by which its copies are recognised, at most 255 bytes.
	// Default: [Config.EventID].
	ID string
	// UUID is the identity that a client library gives to each message. It is the event id if
	// neither the headers nor the payload have one. Leave it empty if copies have different UUIDs.
	UUID string
	// Handler names the handler that processes the message. Each of several handlers of a consumer
	// processes each event once. At most 128 bytes. Choose it once: under another name nothing was
	// processed yet. Default: [Config.Handler].
	Handler string
	// Tenant is whose event it is, where the same ID may come from different tenants. At most 64
	// bytes. Default: [Config.Tenant].
	Tenant string

	// Topic is where the message was read. Partition and Offset are the place in Topic, if Located.
	// The table keeps them, so that a person finds the message again.
	Topic     string
	Partition int32
	Offset    int64
	Located   bool

	// PartitionKey and KeySeq give the event its place in the order of its key, for
	// [Config.OnlyNewer]. Default: the headers partition_key and key_seq.
	PartitionKey string
	KeySeq       int64

	// Acked is closed when the message has been acknowledged. A message that is acknowledged before
	// its work is committed would be lost: see [ErrAcknowledged]. Nil: no message is acknowledged
	// before its Result.
	Acked <-chan struct{}

	Headers map[string]string
	Payload []byte
	// Raw is for the Handler: the message of the client library, for example. The inbox does not
	// look at it.
	Raw any
}

// Event returns the event of a message with its key, as this inbox remembers it. With an error
// wrapping ErrInvalidMessage the Event has every field that could be read.
func (in *Inbox) Event(msg Message) (Event, error) {
	msg.Headers = core.UnpackFields(msg.Headers)
	h := msg.Headers
	e := Event{
		Key: Key{
			Consumer: in.cfg.Consumer, Handler: either(msg.Handler, in.cfg.Handler),
			Tenant: msg.Tenant, EventID: msg.ID,
		},
		Type:    eventType(msg),
		Version: int(number(h[core.HeaderSchemaVersion], 31)),

		AggregateType: h[core.HeaderAggregateType],
		AggregateID:   h[core.HeaderAggregateID],
		PartitionKey:  either(msg.PartitionKey, h[core.HeaderPartitionKey]),
		KeySeq:        msg.KeySeq,
		Topic:         msg.Topic,
		Partition:     msg.Partition,
		Offset:        msg.Offset,
		Located:       msg.Located,
	}
	if e.KeySeq == 0 {
		e.KeySeq = number(h[core.HeaderKeySeq], 63)
		// A newer event overtook this one. Its state is as old as its first number.
		if first := number(h[core.HeaderFirstKeySeq], 63); first > 0 {
			e.KeySeq = first
		}
	}
	if e.Tenant == "" {
		e.Tenant = in.cfg.Tenant(msg)
	}
	if e.EventID == "" {
		var err error
		if e.EventID, err = in.cfg.EventID(msg); err != nil && !errors.Is(err, ErrInvalidMessage) {
			err = errtext.Errorf("%w: event id: %w", ErrInvalidMessage, err)
		}
		if err != nil {
			return e, err
		}
	}
	if e.Handler == "" {
		return e, fmt.Errorf("%w: its handler has no name: set Config.Handler", ErrInvalidMessage)
	}
	if err := e.Validate(); err != nil {
		return e, errtext.Errorf("%w: %w", ErrInvalidMessage, err)
	}
	return e, nil
}

var errNoID = fmt.Errorf("%w: no event id: neither header event_id, nor a CloudEvent's id, nor a UUID; "+
	"set Message.ID or Config.EventID", ErrInvalidMessage)

// EventID returns the event id from the headers of a message: event_id, else the identity of a
// CloudEvent. That identity is source and id, joined by a blank, as the bindings of Kafka, AMQP,
// NATS and HTTP write them (ce_id, cloudEvents_id, cloudEvents:id, ce-id). Without either the error
// wraps [ErrInvalidMessage].
func EventID(headers map[string]string) (string, error) { return MessageID(Message{Headers: headers}) }

// MessageID returns the identity of the event of a message, which is the default of
// [Config.EventID]. It is [EventID] of the headers. Without an event id in the headers, and if the
// content type is a CloudEvent's (application/cloudevents+json), it is source and id of that
// document. Without either it is [Message.UUID], and without that the error wraps
// [ErrInvalidMessage]. [Message.ID] is not looked at.
func MessageID(msg Message) (string, error) {
	msg.Headers = core.UnpackFields(msg.Headers)
	if id := msg.Headers[core.HeaderEventID]; id != "" {
		return id, nil
	}
	attrs := cloudEvent(msg)
	// An id is unique within its source only.
	switch id, source := attrs["id"], attrs["source"]; {
	case id == "" && msg.UUID == "":
		return "", errNoID
	case id == "":
		return msg.UUID, nil
	case source != "":
		return source + " " + id, nil
	default:
		return id, nil
	}
}

// causeOf returns the cause for the handler of a message: its event. Its id is the header event_id,
// the id of a CloudEvent, or else the identity under which the inbox stores the event.
func causeOf(msg Message, e Event) cause.Cause {
	id, chain := msg.Headers[core.HeaderEventID], msg.Headers[core.HeaderCorrelationID]
	if id == "" {
		attrs := cloudEvent(msg)
		id, chain = attrs["id"], either(chain, attrs["correlationid"])
	}
	if !cause.Fits(id) {
		id = e.EventID
	}
	return cause.New(id, chain)
}

func eventType(msg Message) string {
	if t := msg.Headers[core.HeaderEventType]; t != "" {
		return t
	}
	return cloudEvent(msg)["type"]
}

func cloudEvent(msg Message) map[string]string {
	return cloudevents.Message{Headers: msg.Headers, Body: msg.Payload}.Attributes()
}

func either(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// number reads a positive number. Any other text is 0: a header that only describes must not stop a
// message.
func number(s string, bits int) int64 {
	n, err := strconv.ParseUint(s, 10, bits)
	if err != nil {
		return 0
	}
	return int64(n) // bits is at most 63
}

// occurredAt returns the time of the event of a message: header occurred_at, else the time of a
// CloudEvent, both as RFC 3339 writes them. Zero: unknown.
func occurredAt(msg Message) time.Time {
	t, err := parseTime(msg.Headers[core.HeaderOccurredAt])
	if err != nil {
		t, _ = parseTime(cloudEvent(msg)["time"])
	}
	return t
}

func parseTime(text string) (time.Time, error) {
	return time.Parse(time.RFC3339Nano, strings.ToUpper(text)) // RFC 3339 allows t and z
}

// Key names one event for one handler of one consumer. It is compared byte by byte.
type Key struct {
	Consumer string // at most 128 bytes
	Handler  string // at most 128 bytes
	Tenant   string // at most 64 bytes; may be empty
	EventID  string // at most 255 bytes
}

// Validate reports every problem of k at once.
func (k Key) Validate() error {
	if err := textcheck.Check(
		textcheck.Part{Name: "consumer", Text: k.Consumer, Limit: 128, Required: true},
		textcheck.Part{Name: "handler", Text: k.Handler, Limit: 128, Required: true},
		textcheck.Part{Name: "tenant", Text: k.Tenant, Limit: 64},
		textcheck.Part{Name: "event id", Text: k.EventID, Limit: 255, Required: true},
	); err != nil {
		return fmt.Errorf("inbox: invalid key: %w", err)
	}
	return nil
}

// Event is the part of an event that a Store keeps: its key and where it came from. Only the key
// decides whether two events are the same. Any other text that is too long for its column is cut.
type Event struct {
	Key
	Type                       string
	Version                    int
	AggregateType, AggregateID string

	// Topic, PartitionKey and KeySeq give the event its place in the order of its key, for Advance.
	// KeySeq is 0 for an event without a place.
	Topic, PartitionKey string
	KeySeq              int64

	// Partition and Offset are where the event was read in Topic, if Located.
	Partition int32
	Offset    int64
	Located   bool
}
