package watermillbridge

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/ormoutbox/ormoutbox/core"
)

const (
	// watermillPrefix is the beginning of the metadata that Watermill's own components add:
	// request-reply, delays, the requeuer.
	watermillPrefix = "_watermill_"
	// uuidMetadata is the name under which Watermill's Pub/Subs send the message's UUID.
	uuidMetadata = "_watermill_message_uuid"
	// natsMsgID names a message for one JetStream stream. A message that is sent on must not keep
	// it, because the next stream would drop the message as a duplicate.
	natsMsgID = "Nats-Msg-Id"
)

// carried is the part of a message that headers of an event cannot hold. It travels in the header
// core.HeaderMessage, as JSON.
type carried struct {
	// UUID is set if it is not the text of the event's id.
	UUID     string            `json:"uuid,omitempty"`
	Metadata map[string]string `json:"metadata,omitempty"` // names or values that no header may have
}

// headersOf returns, as headers of an event, all metadata of a message that are neither fields of
// the event nor written by its last transport. UUID is empty if it need not be kept.
func headersOf(uuid string, md message.Metadata) (map[string]string, error) {
	h := make(map[string]string, len(md))
	c := carried{UUID: uuid}
	for k, v := range md {
		if isField(k) || isTransport(k) {
			continue
		}
		if core.CheckHeader(k, v) == nil {
			h[k] = v
			continue
		}
		if !utf8.ValidString(k) || !utf8.ValidString(v) {
			return nil, fmt.Errorf("metadata %q is not valid UTF-8: encode it, as base64 for example", k)
		}
		if c.Metadata == nil {
			c.Metadata = map[string]string{}
		}
		c.Metadata[k] = v
	}
	if c.UUID != "" || c.Metadata != nil {
		if !utf8.ValidString(c.UUID) {
			return nil, fmt.Errorf("message UUID %q is not valid UTF-8", c.UUID)
		}
		text, err := json.Marshal(c)
		if err != nil {
			return nil, err
		}
		// The one control character that JSON does not escape.
		h[core.HeaderMessage] = strings.ReplaceAll(string(text), "\x7f", `\u007f`)
	}
	if len(h) == 0 {
		return nil, nil
	}
	return h, nil
}

// unpack replaces the header core.HeaderMessage by the metadata that it carries, and returns the
// UUID that came with them, if any. A value that another program has written there stays unchanged.
func unpack(md message.Metadata) (uuid string) {
	v, ok := md[core.HeaderMessage]
	if !ok {
		return ""
	}
	var c carried
	if json.Unmarshal([]byte(v), &c) != nil {
		return ""
	}
	delete(md, core.HeaderMessage)
	for k, v := range c.Metadata {
		if !isField(k) && !isTransport(k) {
			md[k] = v
		}
	}
	return c.UUID
}

// plainHeaders returns the metadata that are headers of the event: without fields, transport
// metadata and metadata of Watermill's components.
func plainHeaders(md message.Metadata) map[string]string {
	var h map[string]string
	for k, v := range md {
		if isField(k) || hasPrefixFold(k, core.HeaderReservedPrefix) || hasPrefixFold(k, watermillPrefix) ||
			k == natsMsgID {
			continue
		}
		if h == nil {
			h = make(map[string]string, len(md))
		}
		h[k] = v
	}
	return h
}

func isField(name string) bool {
	switch name {
	case core.HeaderEventID, core.HeaderEventType, core.HeaderSchemaVersion, core.HeaderAggregateType,
		core.HeaderAggregateID, core.HeaderAggregateVersion, core.HeaderTenantID, core.HeaderPartitionKey,
		core.HeaderKeySeq, core.HeaderOccurredAt, core.HeaderContentType:
		return true
	}
	return false
}

// isTransport reports whether metadata describe one journey of a message. The next journey writes
// them again.
func isTransport(name string) bool {
	switch name {
	case core.HeaderAttempt, core.HeaderReplayOf, core.HeaderRowID, core.HeaderSource, core.HeaderMessage,
		core.HeaderFields, uuidMetadata, natsMsgID:
		return true
	}
	return false
}

func hasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}
