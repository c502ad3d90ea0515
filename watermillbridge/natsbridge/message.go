package natsbridge

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/cloudevents"
	"github.com/ormoutbox/ormoutbox/watermillbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/internal/link"
)

const (
	// uuidHeader has the UUID of a message of Watermill.
	uuidHeader = "_watermill_message_uuid"
	// serverPrefix begins the headers that control the server, such as deleting the stream's other
	// messages (Nats-Rollup).
	serverPrefix = "Nats-"
)

// natsMessage returns msg in the form of watermill-nats' NATSMarshaler. An event with metadata that
// command the server, or that NATS would change, is refused. Commands are left out of other
// messages, which may have been consumed.
func natsMessage(topic string, msg *message.Message) (*nats.Msg, error) {
	m := &nats.Msg{Subject: topic, Data: msg.Payload, Header: make(nats.Header, len(msg.Metadata)+1)}
	m.Header.Set(uuidHeader, msg.UUID)
	if err := checkStatus(len(msg.Payload), msg.Metadata); err != nil {
		return nil, core.Permanent(err)
	}
	_, event := msg.Metadata[rowIDMetadata]
	if event {
		if err := checkMetadata(msg); err != nil {
			return nil, core.Permanent(err)
		}
	}
	for name, v := range msg.Metadata {
		if name == rowIDMetadata || !commands(name) {
			m.Header.Set(name, v)
		}
	}
	return m, nil
}

// checkMetadata returns an error if NATS would not carry msg as it is.
func checkMetadata(msg *message.Message) error {
	for name, v := range msg.Metadata {
		if name == rowIDMetadata {
			continue
		}
		if err := checkHeader(name, v); err != nil {
			return err
		}
	}
	return checkHeader("UUID", msg.UUID)
}

// checkHeader returns an error for metadata that the server would take for a command, or that NATS
// would refuse or change. A name of watermill's metadata may be any text.
func checkHeader(name, v string) error {
	switch {
	case commands(name):
		return errCommand(name)
	case !isToken(name):
		return fmt.Errorf("natsbridge: metadata %.64q cannot be a header of NATS: choose a name of letters, digits "+
			"and -", name)
	case strings.Trim(v, " \t") != v:
		return fmt.Errorf("natsbridge: the value of %.64q has blanks around it, which NATS takes away: trim it", name)
	case strings.ContainsAny(v, "\r\n"):
		return fmt.Errorf("natsbridge: the value of %.64q has a line break, which NATS replaces by a blank: encode it",
			name)
	}
	return nil
}

// checkStatus returns an error for a message that clients of NATS take for an answer of the server,
// and drop. The server would deliver it again and again, and with MaxAckPending 1 nothing else.
func checkStatus(payload int, metadata message.Metadata) error {
	if payload > 0 || metadata["Status"] == "" {
		return nil
	}
	return errors.New("natsbridge: header \"Status\" and no payload: clients of NATS would take the message for an " +
		"answer of the server: choose another name, or send a payload")
}

func commands(header string) bool {
	return len(header) >= len(serverPrefix) && strings.EqualFold(header[:len(serverPrefix)], serverPrefix)
}

// isToken reports whether s can be the name of a header.
func isToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r > '~' || strings.ContainsRune("\"(),/:;<=>?@[\\]{}", r)
	})
}

func errCommand(name string) error {
	return fmt.Errorf("natsbridge: header %.64q begins with %s, and the server would take it for a command: choose "+
		"another name", name, serverPrefix)
}

// checkSize is the watermillbridge.Config.CheckSize. It refuses what NATS would refuse or change.
func (p *publisher) checkSize(e core.Event) error {
	if _, ok := e.Headers[rowIDMetadata]; ok {
		return errCommand(rowIDMetadata)
	}
	plain := e
	plain.Payload = nil
	msg := watermillbridge.NewMessage(context.Background(), core.Delivery{Event: plain})
	if err := checkMetadata(msg); err != nil {
		return err
	}
	if m := p.cfg.Bridge.CloudEvents; m == nil || m.Mode == cloudevents.ModeBinary {
		if err := checkStatus(len(e.Payload), msg.Metadata); err != nil {
			return err
		}
	}
	limit, whose := p.limit(e.Topic)
	size, err := messageSize(e, p.cfg.Bridge.CloudEvents, limit)
	if err != nil {
		return err
	}
	if size <= limit {
		return nil
	}
	return fmt.Errorf("natsbridge: the message would have %d bytes with its headers, more than %s %d: store the "+
		"payload elsewhere and send a reference, or raise %s", size, whose, limit, whose)
}

// limit returns the largest message of a topic, and the name of the setting.
func (p *publisher) limit(topic string) (bytes int, whose string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	bytes, whose = p.cfg.MaxMessageBytes, "Config.MaxMessageBytes"
	if s, ok := p.link.Last(); ok {
		if n := s.conn.MaxPayload(); n > 0 {
			bytes, whose = int(n), "max_payload of the server"
		}
	}
	if s := p.streams[topic]; s.maxMessage > 0 && s.maxMessage < bytes {
		bytes, whose = s.maxMessage, "max_msg_size of stream "+s.name
	}
	return bytes, whose
}

// besidePayload is an upper limit for the headers of an event in a message.
const besidePayload = 32 << 10

// messageSize returns the largest size that the message of an event can have, with later attempts
// and as a replay. It is not exact for events far below the limit. mapper may be nil.
func messageSize(e core.Event, mapper *cloudevents.Mapper, limit int) (int, error) {
	payload, beside := len(e.Payload), besidePayload
	if mapper != nil { // base64, and attributes beside the fields, percent-encoded
		payload, beside = 2*payload, 5*besidePayload
	}
	if payload+beside <= limit {
		return payload, nil
	}
	msg, payload, err := link.Largest(e, rowIDMetadata, mapper)
	if err != nil {
		return 0, err
	}
	m, err := natsMessage("", msg)
	if err != nil {
		return 0, err
	}
	m.Header.Set(nats.ExpectedStreamHdr, strings.Repeat("x", maxStreamName))
	return m.Size() + payload, nil
}

// maxStreamName is how long the name of a stream may be.
const maxStreamName = 255
