package inbox

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/ormoutbox/ormoutbox/core"
)

// Event returns the event of a message as this inbox knows it, with its key. The error wraps
// ErrInvalidMessage.
func (in *Inbox) Event(msg *message.Message) (Event, error) {
	if msg == nil {
		return Event{}, fmt.Errorf("%w: it is nil", ErrInvalidMessage)
	}
	id, err := in.cfg.EventID(msg)
	if err != nil {
		return Event{}, fmt.Errorf("%w: event id: %w", ErrInvalidMessage, err)
	}
	src, md := in.cfg.Source(msg), msg.Metadata
	e := Event{
		Key:     Key{Consumer: in.cfg.Consumer, Handler: in.cfg.Handler(msg), Tenant: in.cfg.Tenant(msg), EventID: id},
		Type:    first(md, core.HeaderEventType, "ce_type", "ce-type", "cloudEvents:type"),
		Version: int(number(md[core.HeaderSchemaVersion], 31)),

		AggregateType: md[core.HeaderAggregateType],
		AggregateID:   md[core.HeaderAggregateID],
		PartitionKey:  md[core.HeaderPartitionKey],
		KeySeq:        number(md[core.HeaderKeySeq], 63),
		Topic:         src.Topic,
		Partition:     src.Partition,
		Offset:        src.Offset,
		Located:       src.Located,
	}
	if first := number(md[core.HeaderFirstKeySeq], 63); first > 0 { // it was overtaken, and its state is as old as ever
		e.KeySeq = first
	}
	if e.Handler == "" {
		return e, fmt.Errorf("%w: its handler has no name: outside of a Router set Config.Handler", ErrInvalidMessage)
	}
	if err := e.Validate(); err != nil {
		return e, fmt.Errorf("%w: %w", ErrInvalidMessage, err)
	}
	return e, nil
}

var errNoID = errors.New("there is none in metadata event_id, nor one of CloudEvents, nor has the message a UUID: " +
	"set Config.EventID")

// eventID is the default of Config.EventID.
func eventID(msg *message.Message) (string, error) {
	md := msg.Metadata
	if id := md[core.HeaderEventID]; id != "" {
		return id, nil
	}
	// CloudEvents in binary mode, as its bindings of Kafka, HTTP and AMQP write it. An id is unique
	// within its source only.
	if id := first(md, "ce_id", "ce-id", "Ce-Id", "cloudEvents:id", "cloudEvents_id"); id != "" {
		if src := first(md, "ce_source", "ce-source", "Ce-Source", "cloudEvents:source",
			"cloudEvents_source"); src != "" {
			return src + " " + id, nil
		}
		return id, nil
	}
	if msg.UUID == "" {
		return "", errNoID
	}
	return msg.UUID, nil
}

func first(md message.Metadata, names ...string) string {
	for _, n := range names {
		if v := md[n]; v != "" {
			return v
		}
	}
	return ""
}

// number reads a positive number, else 0: what only describes must not stop a message.
func number(s string, bits int) int64 {
	n, err := strconv.ParseUint(s, 10, bits)
	if err != nil {
		return 0
	}
	return int64(n) //nolint:gosec // bits is at most 63
}

func occurredAt(md message.Metadata) time.Time {
	t, _ := time.Parse(time.RFC3339Nano, first(md, core.HeaderOccurredAt, "ce_time", "ce-time"))
	return t
}
