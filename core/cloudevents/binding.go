package cloudevents

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ormoutbox/ormoutbox/core/internal/enum"
)

// Binding is the way in which a protocol carries a CloudEvent.
type Binding uint8

// The bindings of CloudEvents 1.0.2. AMQP writes the prefix cloudEvents: of that version.
// AMQPUnderscore writes cloudEvents_, which later drafts advise for consumers that use JMS. Both
// read both. The headers of NATS follow the same drafts, because 1.0.2 has structured mode alone.
const (
	Kafka Binding = iota + 1
	AMQP
	AMQPUnderscore
	NATS
	HTTP
)

var bindingNames = []string{Kafka: "kafka", AMQP: "amqp", AMQPUnderscore: "amqp_", NATS: "nats", HTTP: "http"}

// String returns kafka, amqp, amqp_, nats or http.
func (b Binding) String() string { return enum.Name(bindingNames, b, "binding") }

// Message is a message of a broker, or a request of HTTP.
type Message struct {
	// Headers are the headers of Kafka, NATS or HTTP, and the application properties of AMQP (the
	// headers of AMQP 0-9-1). The name content-type stands for the content type of the message: a
	// header, but for AMQP its property of that name.
	Headers map[string]string
	// Body is the value of a Kafka record, the payload, or the body of a request.
	Body []byte
}

// ContentType returns the content type in the headers of the message, empty without one.
func (m Message) ContentType() string { return contentTypeOf(m.Headers, contentTypeHTTP) }

// structuredContentType is the content type of a message in structured mode. The SDK for JavaScript
// refuses the charset in capitals, though case has no meaning there.
const structuredContentType = "application/cloudevents+json; charset=utf-8"

const (
	contentType     = "content-type"
	contentTypeHTTP = "Content-Type" // clients of NATS compare names with their case
	mediaTypePrefix = "application/cloudevents"
)

const (
	prefixKafka          = "ce_"
	prefixAMQP           = "cloudEvents:"
	prefixAMQPUnderscore = "cloudEvents_"
	prefixHTTP           = "ce-"
)

func (b Binding) prefix() string {
	return [...]string{
		Kafka: prefixKafka, AMQP: prefixAMQP, AMQPUnderscore: prefixAMQPUnderscore, NATS: prefixHTTP, HTTP: prefixHTTP,
	}[b]
}

// textual reports whether values are percent-encoded, and names compared without their case.
func (b Binding) textual() bool { return b == NATS || b == HTTP }

// Owns reports whether a header belongs to the CloudEvent of a message: an attribute of binary
// mode.
func (b Binding) Owns(header string) bool {
	_, ok := b.attribute(header)
	return ok
}

// Collides reports whether a reader of some binding would take a header of an event for a part of
// its CloudEvent: for an attribute, or for the content type, whose name readers find in any case.
// The bridges leave such headers out. The name content-type itself belongs to the bridges.
func (*Mapper) Collides(header string) bool {
	return Kafka.Owns(header) || AMQP.Owns(header) || HTTP.Owns(header) ||
		header != contentType && strings.EqualFold(header, contentType)
}

// attribute returns the name of the attribute that a header carries.
func (b Binding) attribute(header string) (string, bool) {
	switch b {
	case Kafka:
		return strings.CutPrefix(header, prefixKafka)
	case AMQP, AMQPUnderscore:
		if name, ok := strings.CutPrefix(header, prefixAMQP); ok {
			return name, true
		}
		return strings.CutPrefix(header, prefixAMQPUnderscore)
	case NATS, HTTP:
		if len(header) >= len(prefixHTTP) && strings.EqualFold(header[:len(prefixHTTP)], prefixHTTP) {
			return strings.ToLower(header[len(prefixHTTP):]), true
		}
	}
	return "", false
}

func (b Binding) validate() error {
	if b < Kafka || b > HTTP {
		return fmt.Errorf("cloudevents: %s is none of Kafka, AMQP, AMQPUnderscore, NATS and HTTP", b)
	}
	return nil
}

// Binary returns the message of e in binary mode. An error wraps ErrInvalid: nothing of e should be
// sent then. The body shares its memory with e.Data, and is never nil.
func (b Binding) Binary(e Event) (Message, error) {
	if err := b.check(e); err != nil {
		return Message{}, err
	}
	if isStructured(e.DataContentType) {
		return Message{}, fmt.Errorf("%w: datacontenttype %.60q: the data is a CloudEvent already, and a receiver "+
			"would take it for this one: send it as it is, or in structured mode", ErrInvalid, e.DataContentType)
	}
	all := e.attributes()
	m := Message{Headers: make(map[string]string, len(all)), Body: e.Data}
	if m.Body == nil {
		m.Body = []byte{}
	}
	for _, a := range all {
		switch {
		case a.name == attrDataContentType && b != NATS:
			m.Headers[contentType] = a.value
		case b.textual():
			m.Headers[b.prefix()+a.name] = percentEncode(a.value)
		default:
			m.Headers[b.prefix()+a.name] = a.value
		}
	}
	return m, nil
}

// Structured returns the message of e in structured mode, in the JSON format. An error wraps
// ErrInvalid.
func (b Binding) Structured(e Event) (Message, error) {
	if err := b.check(e); err != nil {
		return Message{}, err
	}
	name := contentType
	if b == NATS {
		name = contentTypeHTTP
	}
	return Message{Headers: map[string]string{name: structuredContentType}, Body: encodeJSON(e)}, nil
}

func (b Binding) check(e Event) error {
	if err := b.validate(); err != nil {
		return err
	}
	return e.Validate()
}

// Decode reads the CloudEvent of a message, in binary or structured mode. An error wraps
// ErrNotCloudEvent or ErrInvalid, or names a format that is not JSON, and the Event is then empty.
// In binary mode Data shares its memory with the body. Header names of NATS and HTTP may have any
// case.
func (b Binding) Decode(m Message) (Event, error) {
	if err := b.validate(); err != nil {
		return Event{}, err
	}
	first := contentType
	if b.textual() {
		first = contentTypeHTTP
	}
	t := contentTypeOf(m.Headers, first)
	if isStructured(t) {
		if !isJSONFormat(t) && (b != NATS || !strings.EqualFold(t, mediaTypePrefix)) {
			return Event{}, fmt.Errorf("%w: %.80q", errFormat, t)
		}
		return decodeJSON(m.Body)
	}
	attrs, problems := b.read(m.Headers)
	if attrs == nil && len(problems) == 0 {
		if b == NATS && t == "" { // before 2.2 NATS had no headers, and some clients still write none
			if members, _, err := readJSON(m.Body); err == nil && members[attrSpecVersion] != "" {
				return decodeJSON(m.Body)
			}
		}
		return Event{}, ErrNotCloudEvent
	}
	if b != NATS {
		if v, ok := attrs[attrDataContentType]; ok && (b == HTTP || t != "" && t != v) {
			problems = append(problems, fmt.Errorf("datacontenttype is in %s: it belongs into the content type alone",
				b.prefix()+attrDataContentType))
		}
		if t != "" {
			attrs[attrDataContentType] = t
		}
	}
	if len(problems) > 0 {
		return Event{}, invalid(problems)
	}
	e, err := fromAttributes(attrs)
	if err != nil {
		return Event{}, err
	}
	if len(m.Body) > 0 {
		e.Data = m.Body
	}
	return e, nil
}

// read returns the attributes in headers, nil if there is none.
func (b Binding) read(headers map[string]string) (attrs map[string]string, problems []error) {
	var separators [2]bool
	for _, header := range slices.Sorted(maps.Keys(headers)) {
		name, ok := b.attribute(header)
		if !ok {
			continue
		}
		if attrs == nil {
			attrs = make(map[string]string, len(headers))
		}
		v := headers[header]
		if b.textual() {
			var err error
			if v, err = percentDecode(v); err != nil {
				problems = append(problems, fmt.Errorf("header %.60q %w", header, err))
			}
		}
		if _, twice := attrs[name]; twice {
			problems = append(problems, fmt.Errorf("attribute %.40q appears twice", name))
		}
		attrs[name] = v
		if strings.HasPrefix(header, prefixAMQP) {
			separators[0] = true
		} else {
			separators[1] = true
		}
	}
	if (b == AMQP || b == AMQPUnderscore) && separators[0] && separators[1] {
		problems = append(problems,
			fmt.Errorf("attributes have both prefixes, %s and %s", prefixAMQP, prefixAMQPUnderscore))
	}
	return attrs, problems
}

// contentTypeOf returns the content type of a message. If several headers have that name in
// different cases, it prefers the spelling of first.
func contentTypeOf(headers map[string]string, first string) string {
	for _, name := range [...]string{first, contentTypeHTTP, contentType} {
		if v, ok := headers[name]; ok {
			return strings.TrimSpace(v)
		}
	}
	for name, v := range headers {
		if len(name) == len(contentType) && strings.EqualFold(name, contentType) {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// isStructured reports whether a content type is CloudEvents', in any format.
func isStructured(t string) bool {
	return len(t) >= len(mediaTypePrefix) && strings.EqualFold(t[:len(mediaTypePrefix)], mediaTypePrefix)
}

// isJSONFormat reports whether a content type is the JSON format of one event.
func isJSONFormat(t string) bool {
	t, _, _ = strings.Cut(t, ";")
	return strings.EqualFold(strings.TrimSpace(t), mediaTypePrefix+"+json")
}

// Header returns the headers of an HTTP request or of a NATS message, for Message.Headers: of each
// name its first value. An attribute that is there twice is an error, which wraps ErrInvalid.
func Header(h map[string][]string) (map[string]string, error) {
	all := make(map[string]string, len(h))
	for name, values := range h {
		if len(values) == 0 {
			continue
		}
		if len(values) > 1 && HTTP.Owns(name) {
			return nil, fmt.Errorf("%w: header %.60q appears %d times", ErrInvalid, name, len(values))
		}
		all[name] = values[0]
	}
	return all, nil
}

// Attributes returns the attributes of the message under their names, by whichever binding and in
// whichever mode it was sent. It is lenient: nothing is checked, and a value that cannot be decoded
// is returned as it is. Nil means that the message has no id of a CloudEvent. Use it to recognise a
// message, and Decode to work with the event.
func (m Message) Attributes() map[string]string {
	for _, b := range [...]Binding{Kafka, AMQP, HTTP} {
		var attrs map[string]string
		for header, v := range m.Headers {
			name, ok := b.attribute(header)
			if !ok {
				continue
			}
			if b.textual() {
				if decoded, err := percentDecode(v); err == nil {
					v = decoded
				}
			}
			if attrs == nil {
				attrs = map[string]string{}
			}
			attrs[name] = v
		}
		if attrs[attrID] != "" {
			return attrs
		}
	}
	if isJSONFormat(contentTypeOf(m.Headers, contentTypeHTTP)) {
		if attrs, _, err := readJSON(m.Body); err == nil && attrs[attrID] != "" {
			return attrs
		}
	}
	return nil
}
