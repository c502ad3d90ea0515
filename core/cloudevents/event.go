package cloudevents

import (
	"errors"
	"fmt"
	"maps"
	"mime"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// specVersion is the attribute specversion of every event that this package writes and reads.
const specVersion = "1.0"

// Errors that callers branch on with errors.Is. The same message fails each time, so none of them
// is worth a retry.
var (
	// ErrNotCloudEvent: a message has neither an attribute of a CloudEvent in its headers nor the
	// content type of one. It may be a message of another kind: treat it as such.
	ErrNotCloudEvent = errors.New("cloudevents: not a CloudEvent")
	// ErrInvalid: a required attribute is missing, or something breaks a rule of the specification.
	// The text names every problem. The event's producer has to change.
	ErrInvalid = errors.New("cloudevents: invalid event")
	// errVersion: specversion is not 1.0. It wraps ErrInvalid.
	errVersion = fmt.Errorf("%w: specversion is not "+specVersion, ErrInvalid)
	// errFormat: the message is a CloudEvent in a format other than JSON, or a batch. Ask the
	// producer for application/cloudevents+json or for binary mode.
	errFormat = errors.New("cloudevents: unsupported event format")
)

// Event is a CloudEvent. ID, Source and Type are required.
type Event struct {
	// ID identifies the event within its Source: two events with the same Source and ID are copies.
	ID string
	// Source is a URI reference that names where the event happened. An absolute URI is best.
	Source string
	// Type names the kind of event, such as "com.example.order.placed".
	Type string
	// Subject is the subject of the event, within Source. Empty: none.
	Subject string
	// Time is when it happened. Zero: unknown.
	Time time.Time
	// DataContentType is the media type of Data. Empty: unknown.
	DataContentType string
	// DataSchema is the absolute URI of the schema of Data. Empty: none.
	DataSchema string
	// Extensions are further attributes. A name has letters a-z and digits only. Values are text: a
	// number or a boolean that was received is here as JSON writes it. Nil: none.
	Extensions map[string]string
	// Data is the payload. Empty: none.
	Data []byte
}

// Validate reports every problem of e at once. The error wraps ErrInvalid.
func (e Event) Validate() error { return invalid(e.problems()) }

func invalid(problems []error) error {
	if len(problems) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrInvalid, errors.Join(problems...))
}

func (e Event) problems() (problems []error) {
	bad := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	text := func(name, s string, required bool) {
		switch p := problem(s); {
		case required && s == "":
			bad("%s is missing", name)
		case p != "":
			bad("%s %s", name, p)
		}
	}
	text("id", e.ID, true)
	text("source", e.Source, true)
	text("type", e.Type, true)
	text("subject", e.Subject, false)
	if e.Source != "" && !isURI(e.Source, false) {
		bad("source %.100q is not a URI reference: percent-encode what RFC 3986 does not allow", e.Source)
	}
	if e.DataSchema != "" && !isURI(e.DataSchema, true) {
		bad("dataschema %.100q is not an absolute URI", e.DataSchema)
	}
	if e.DataContentType != "" && !isMediaType(e.DataContentType) {
		bad("datacontenttype %.100q is not a media type such as application/json", e.DataContentType)
	}
	if y := e.Time.UTC().Year(); !e.Time.IsZero() && (y < 0 || y > 9999) {
		bad("time is in the year %d", y)
	}
	for _, name := range slices.Sorted(maps.Keys(e.Extensions)) {
		switch {
		case !isName(name):
			bad("attribute name %.40q has other characters than a-z and 0-9", name)
		case isReserved(name):
			bad("extension %q has the name of a core attribute: set the field", name)
		default:
			text("extension "+name, e.Extensions[name], false)
		}
	}
	return problems
}

// Names of the core attributes.
const (
	attrSpecVersion     = "specversion"
	attrID              = "id"
	attrSource          = "source"
	attrType            = "type"
	attrSubject         = "subject"
	attrTime            = "time"
	attrDataContentType = "datacontenttype"
	attrDataSchema      = "dataschema"

	memberData       = "data"
	memberDataBase64 = "data_base64"
)

// isReserved reports whether an extension cannot have a name.
func isReserved(name string) bool {
	switch name {
	case attrSpecVersion, attrID, attrSource, attrType, attrSubject, attrTime, attrDataContentType, attrDataSchema,
		memberData:
		return true
	}
	return false
}

// attribute is a name with the canonical text of its value.
type attribute struct{ name, value string }

// attributes returns the attributes of e that have a value, the core ones first, in a fixed order.
func (e Event) attributes() []attribute {
	all := []attribute{
		{attrSpecVersion, specVersion},
		{attrID, e.ID},
		{attrSource, e.Source},
		{attrType, e.Type},
	}
	optional := func(name, value string) {
		if value != "" {
			all = append(all, attribute{name, value})
		}
	}
	optional(attrSubject, e.Subject)
	if !e.Time.IsZero() {
		optional(attrTime, e.Time.UTC().Format(time.RFC3339Nano))
	}
	optional(attrDataContentType, e.DataContentType)
	optional(attrDataSchema, e.DataSchema)
	for _, name := range slices.Sorted(maps.Keys(e.Extensions)) {
		all = append(all, attribute{name, e.Extensions[name]})
	}
	return all
}

// fromAttributes returns the event with the given attributes, without its data.
func fromAttributes(attrs map[string]string) (Event, error) {
	if v, ok := attrs[attrSpecVersion]; ok && v != specVersion {
		return Event{}, fmt.Errorf("%w but %.20q", errVersion, v)
	}
	e := Event{
		ID: attrs[attrID], Source: attrs[attrSource], Type: attrs[attrType], Subject: attrs[attrSubject],
		DataContentType: attrs[attrDataContentType], DataSchema: attrs[attrDataSchema],
	}
	var problems []error
	if _, ok := attrs[attrSpecVersion]; !ok {
		problems = append(problems, errors.New("specversion is missing"))
	}
	for _, name := range []string{attrSubject, attrTime, attrDataContentType, attrDataSchema} {
		if v, ok := attrs[name]; ok && v == "" {
			problems = append(problems, fmt.Errorf("%s is empty", name))
		}
	}
	if v := attrs[attrTime]; v != "" {
		t, err := time.Parse(time.RFC3339Nano, strings.ToUpper(v)) // RFC 3339 allows t and z
		if err != nil {
			problems = append(problems, fmt.Errorf("time %.40q is not as in RFC 3339", v))
		}
		e.Time = t.UTC()
	}
	for name, v := range attrs {
		if isReserved(name) && name != memberData {
			continue
		}
		if e.Extensions == nil {
			e.Extensions = map[string]string{}
		}
		e.Extensions[name] = v
	}
	return e, invalid(append(problems, e.problems()...))
}

// isName reports whether s is the name of an attribute.
func isName(s string) bool {
	other := func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') }
	return s != "" && !strings.ContainsFunc(s, other)
}

// problem returns why the text of an attribute is invalid, or "".
func problem(s string) string {
	if !utf8.ValidString(s) {
		return "is not valid UTF-8"
	}
	for _, r := range s {
		switch {
		case r < 0x20, r >= 0x7f && r <= 0x9f:
			return "has a control character"
		case r&0xfffe == 0xfffe, r >= 0xfdd0 && r <= 0xfdef:
			return "has a character that Unicode reserves (a noncharacter)"
		}
	}
	return ""
}

// isURI reports whether s is a URI reference, with a scheme if absolute.
func isURI(s string, absolute bool) bool {
	u, err := url.Parse(s)
	return err == nil && (!absolute || u.Scheme != "") && !strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || strings.ContainsRune("\"<>\\^`{|}", r)
	})
}

// isMediaType reports whether s is a media type with a subtype, in printable ASCII, without blanks
// around it.
func isMediaType(s string) bool {
	t, _, err := mime.ParseMediaType(s)
	hidden := func(r rune) bool { return r < ' ' || r > '~' }
	return err == nil && strings.Contains(t, "/") && strings.TrimSpace(s) == s && !strings.ContainsFunc(s, hidden)
}
