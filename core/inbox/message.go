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
)

// Message is a message that a consumer got from its broker. For events that our outbox published,
// Headers are enough: every other field that is empty is read from them.
type Message struct {
	// ID is the identity of the event, by which its copies are recognised, at most 255 bytes.
	// Default: Config.EventID.
	ID string
	// Handler names the handler that processes the message. Each of several handlers of a consumer
	// processes each event once. At most 128 bytes. Choose it once: under another name nothing was
	// processed yet. Default: Config.Handler.
	Handler string
	// Tenant is whose event it is, where the same ID may come from different tenants. At most 64
	// bytes. Default: Config.Tenant.
	Tenant string

	// Topic is where the message was read. Partition and Offset say where in Topic, if Located. The
	// table keeps them, so that a person finds the message again.
	Topic     string
	Partition int32
	Offset    int64
	Located   bool

	// PartitionKey and KeySeq give the event its place in the order of its key, for
	// Config.OnlyNewer. Default: the headers partition_key and key_seq.
	PartitionKey string
	KeySeq       int64

	// Acked is closed when the message has been acknowledged. A message that is acknowledged before
	// its work is committed would be lost: see ErrAcknowledged. Nil: nobody acknowledges a message
	// before its Result.
	Acked <-chan struct{}

	Headers map[string]string
	Payload []byte
	// Raw is for the Handler: the message of the client library, for example. The inbox does not
	// look at it.
	Raw any
}

// Event returns the event of a message with its key, as this inbox remembers it. The error wraps
// ErrInvalidMessage; the Event then has what is known all the same.
func (in *Inbox) Event(msg Message) (Event, error) {
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
		// A newer event overtook this one. Its state is as old as its first number says.
		if first := number(h[core.HeaderFirstKeySeq], 63); first > 0 {
			e.KeySeq = first
		}
	}
	if e.Tenant == "" {
		e.Tenant = in.cfg.Tenant(msg)
	}
	if e.EventID == "" {
		var err error
		if e.EventID, err = in.cfg.EventID(msg); err != nil {
			return e, errtext.Errorf("%w: event id: %w", ErrInvalidMessage, err)
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

// ErrNoID: headers have no identity of an event.
var ErrNoID = errors.New("inbox: no event id: neither header event_id nor that of CloudEvents; set Message.ID or " +
	"Config.EventID")

// EventID returns the identity of an event from the headers of its message. That is event_id.
// Without it, the identity of CloudEvents is taken: source and id, joined by a blank, as the
// bindings of Kafka, AMQP, NATS and HTTP write them (ce_id, cloudEvents_id, cloudEvents:id, ce-id).
// Without either the error is ErrNoID.
func EventID(headers map[string]string) (string, error) { return MessageID(Message{Headers: headers}) }

// MessageID returns the identity of the event of a message, which is the default of Config.EventID.
// It is EventID of the headers. Without that, and if the content type says that the payload is a
// CloudEvent (application/cloudevents+json), it is source and id of that document. Without either
// the error is ErrNoID. Message.ID is not looked at.
func MessageID(msg Message) (string, error) {
	if id := msg.Headers[core.HeaderEventID]; id != "" {
		return id, nil
	}
	attrs := cloudEvent(msg)
	// An id is unique within its source only.
	switch id, source := attrs["id"], attrs["source"]; {
	case id == "":
		return "", ErrNoID
	case source != "":
		return source + " " + id, nil
	default:
		return id, nil
	}
}

// causeOf returns what the handler of a message handles: its event. That is the header event_id, the
// id of a CloudEvent, or else the identity by which the inbox knows the message.
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
	return cloudevents.Attributes(cloudevents.Message{Headers: msg.Headers, Body: msg.Payload})
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

// OccurredAt returns the time of the event of a message: header occurred_at, else the time of a
// CloudEvent, both as RFC 3339 writes them. Zero: unknown.
func OccurredAt(msg Message) time.Time {
	t, err := parseTime(msg.Headers[core.HeaderOccurredAt])
	if err != nil {
		t, _ = parseTime(cloudEvent(msg)["time"])
	}
	return t
}

func parseTime(text string) (time.Time, error) {
	return time.Parse(time.RFC3339Nano, strings.ToUpper(text)) // RFC 3339 allows t and z
}
