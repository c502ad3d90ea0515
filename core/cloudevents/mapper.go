package cloudevents

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ormoutbox/ormoutbox/core"
)

// Mode is where the attributes of an event travel.
type Mode uint8

// The content modes.
const (
	ModeBinary     Mode = iota // in headers; the body is the data
	ModeStructured             // in the body, a JSON document, together with the data
)

// Mapper makes CloudEvents of the events of an outbox. Source is required. It is safe for use by
// several goroutines if Edit is.
type Mapper struct {
	// Source is the attribute source: a URI reference that names this producer, such as
	// "https://shop.example/orders". Never change it lightly: consumers deduplicate by source and
	// id.
	Source string
	// Binding is how the broker carries the attributes. The bridges of brokers set it.
	// Elsewhere it is required.
	Binding Binding
	// Mode is the content mode. Default: ModeBinary.
	Mode Mode
	// Edit changes the event before it is sent. It may set DataSchema, add to Extensions (which is
	// never nil here) and replace what the Mapper has chosen. It is called when an event is
	// recorded, too, to refuse it early; d then has no RowID, KeySeq and Attempt. An unmarked error
	// refuses the event. It must do no I/O, must not change d, and must give the same ID and Source
	// for each attempt. Default: none.
	Edit func(d core.Delivery, e *Event) error
}

// Validate reports every problem of m at once.
func (m *Mapper) Validate() error {
	var problems []error
	if m.Source == "" {
		problems = append(problems, errors.New("cloudevents: Mapper.Source is empty"))
	} else if !isURI(m.Source, false) {
		problems = append(problems, fmt.Errorf("cloudevents: Mapper.Source %.100q is not a URI reference", m.Source))
	}
	if m.Mode > ModeStructured {
		problems = append(problems, fmt.Errorf("cloudevents: Mapper.Mode is %d", m.Mode))
	}
	if err := m.Binding.validate(); err != nil {
		problems = append(problems, err)
	}
	return errors.Join(problems...)
}

// For returns a copy of m with the binding of a bridge, or nil if m is nil. A Mapper with another
// binding is refused, unless also has the binding.
func (m *Mapper) For(b Binding, also ...Binding) (*Mapper, error) {
	if m == nil {
		return nil, nil
	}
	own := *m
	switch {
	case own.Binding == 0:
		own.Binding = b
	case own.Binding != b && !slices.Contains(also, own.Binding):
		return nil, fmt.Errorf("cloudevents: Mapper.Binding is %s: leave it empty, for %s", own.Binding, b)
	}
	return &own, nil
}

// Event returns the CloudEvent of d:
//
//   - id is the event's ID, type its Type, time its OccurredAt;
//   - subject is its AggregateID, else its Key;
//   - datacontenttype is its ContentType, and data its Payload, which it shares;
//   - extension partitionkey is its Key;
//   - extensions traceparent and tracestate are its headers of that name: the trace in which the
//     event was recorded. Without a traceparent there is neither;
//   - extensions causationid and correlationid are its headers causation_id and correlation_id.
//
// Then Edit is called. An error of Validate wraps ErrInvalid.
func (m *Mapper) Event(d core.Delivery) (Event, error) {
	e := Event{
		ID: d.ID, Source: m.Source, Type: d.Type, Subject: d.AggregateID, Time: d.OccurredAt,
		DataContentType: d.ContentType, Data: orNil(d.Payload),
		Extensions: make(map[string]string, 4),
	}
	e.Subject = cmp.Or(e.Subject, d.Key)
	if d.Key != "" {
		e.Extensions["partitionkey"] = d.Key
	}
	for _, name := range [...]string{"traceparent", "tracestate"} {
		v := d.Headers[name]
		if v == "" || problem(v) != "" {
			break // a trace must not stop an event, and a state needs a trace
		}
		e.Extensions[name] = v
	}
	for _, name := range [...]string{core.HeaderCausationID, core.HeaderCorrelationID} {
		if v := d.Headers[name]; v != "" && problem(v) == "" {
			e.Extensions[strings.ReplaceAll(name, "_", "")] = v
		}
	}
	if m.Edit != nil {
		if err := m.Edit(d, &e); err != nil {
			return Event{}, fmt.Errorf("cloudevents: Mapper.Edit: %w", err)
		}
	}
	if err := e.Validate(); err != nil {
		return Event{}, err
	}
	return e, nil
}

// Check returns an error if the CloudEvent of e could not be sent. The bridges call it when an
// event is recorded, so that the event is refused before anything is written.
func (m *Mapper) Check(e core.Event) error {
	ce, err := m.Event(core.Delivery{Event: e})
	if err == nil && m.Mode == ModeBinary {
		_, err = m.Binding.Binary(ce)
	}
	return err
}

// Message returns the message of d. In binary mode its body shares memory with d.Payload.
func (m *Mapper) Message(d core.Delivery) (Message, error) {
	e, err := m.Event(d)
	if err != nil {
		return Message{}, err
	}
	if m.Mode == ModeStructured {
		return m.Binding.Structured(e)
	}
	return m.Binding.Binary(e)
}
