package inbox

import (
	"errors"
	"strconv"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/ormoutbox/ormoutbox/core"
	engine "github.com/ormoutbox/ormoutbox/core/inbox"
)

// translation turns messages of Watermill into messages of package core/inbox.
type translation struct {
	handler func(*message.Message) string
	eventID func(*message.Message) (string, error)
	tenant  func(*message.Message) string
	source  func(*message.Message) Source
}

// withDefaults returns t with its nil functions set.
func (t translation) withDefaults() translation {
	if t.handler == nil {
		t.handler = func(msg *message.Message) string { return handlerNameFromCtx(msg.Context()) }
	}
	if t.eventID == nil {
		t.eventID = eventID
	}
	if t.tenant == nil {
		t.tenant = func(msg *message.Message) string { return msg.Metadata[core.HeaderTenantID] }
	}
	if t.source == nil {
		t.source = sourceOf
	}
	return t
}

// sourceOf is the default of Config.Source. A message that was forwarded may still have the place
// in the topic from which it was read before. That place is ignored.
func sourceOf(msg *message.Message) Source {
	s := Source{Topic: message.SubscribeTopicFromCtx(msg.Context())}
	place, ok := strings.CutPrefix(msg.Metadata[core.HeaderSource], s.Topic+"/")
	if !ok {
		return s
	}
	partition, offset, _ := strings.Cut(place, "/")
	p, err := strconv.ParseInt(partition, 10, 32)
	o, err2 := strconv.ParseInt(offset, 10, 64)
	if err != nil || err2 != nil {
		return s
	}
	s.Partition, s.Offset, s.Located = int32(p), o, true
	return s
}

// message translates msg, which may be nil. The engine asks tenantOf and id for the rest: an empty
// tenant is an answer, and an event id may be missing.
func (t translation) message(msg *message.Message) engine.Message {
	if msg == nil {
		return engine.Message{}
	}
	src := t.source(msg)
	handler, named := msg.Context().Value(handlerName{}).(string)
	if !named {
		handler = t.handler(msg)
	}
	return engine.Message{
		Handler: handler,
		Topic:   src.Topic, Partition: src.Partition, Offset: src.Offset, Located: src.Located,
		Acked:   msg.Acked(),
		Headers: msg.Metadata, Payload: msg.Payload, Raw: msg,
	}
}

// id is the function EventID of the engine's Config.
func (t translation) id(m engine.Message) (string, error) {
	msg, ok := m.Raw.(*message.Message)
	if !ok {
		return "", errors.New("the message is nil")
	}
	return t.eventID(msg)
}

// tenantOf is the function Tenant of the engine's Config.
func (t translation) tenantOf(m engine.Message) string {
	if msg, ok := m.Raw.(*message.Message); ok {
		return t.tenant(msg)
	}
	return ""
}

var errNoID = errors.New("there is none in metadata event_id, nor one of CloudEvents, nor has the message a UUID: " +
	"set Config.EventID")

// eventID is the default of Config.EventID.
func eventID(msg *message.Message) (string, error) {
	id, err := engine.MessageID(engine.Message{Headers: msg.Metadata, Payload: msg.Payload})
	switch {
	case err == nil:
		return id, nil
	case msg.UUID == "":
		return "", errNoID
	}
	return msg.UUID, nil
}
