package contract

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/textcheck"
)

// Spec declares a type of events whose data is a T, which is a struct. Type, Owner, Description and
// Example are required.
type Spec[T any] struct {
	// Type names the kind of event, such as "order.placed". It never changes: another type is
	// another event. At most 128 bytes.
	Type string
	// Version is the version of T. It grows by one with each change that readers of the version
	// before cannot follow. Default: one more than the last of Older, so 1 without any.
	Version int
	// Older are the versions that consumers still read, ascending without a gap, up to the one
	// before Version.
	Older []Older

	// Description is a sentence about the event.
	Description string
	// Owner is the team to ask.
	Owner string
	// Domain is the part of the business, and the folder of the documents. Default: Type up to its
	// first dot.
	Domain string
	// Notes is for consumers, in Markdown: when the event happens, what they may expect.
	Notes string
	// Deprecated names the replacement for consumers. Producers go on until no consumer is left.
	Deprecated string

	// Topic is core.Event.Topic. Default: none, so that core.Config.Routes decides, else
	// AggregateType, else Type.
	Topic string
	// AggregateType is core.Event.AggregateType.
	AggregateType string
	// Example is a typical value. It stands in the documents, and is encoded and decoded once when
	// it is declared.
	Example T
}

// EventType is a declared type of events whose data is a T. It is safe for use by several
// goroutines.
type EventType[T any] struct {
	info      Info
	aggregate func(reflect.Value) (string, error) // nil: no field has the tag
	key       func(reflect.Value) (string, error)
	versions  []version // ascending, without a gap; the last is T's
}

// version reads the data of one version.
type version struct {
	number int
	out    reflect.Type // the result of up
	check  *checker
	decode func(payload []byte) (any, error)
	up     func(any) (any, error) // nil for the last
}

// Must returns v, and panics if err is not nil. It is for declarations in variables of a package:
// a program with a wrong declaration ends at its start.
func Must[V any](v V, err error) V {
	if err != nil {
		panic(err) //nolint:forbidigo // as regexp.MustCompile: a mistake of the program, at its start
	}
	return v
}

// Define returns the declared type, or an error that names every problem: a text that is missing,
// versions with a gap, an Older whose function returns another type than the next version has, an
// example that is not encoded, or is not read back by Decode.
func Define[T any](s Spec[T]) (*EventType[T], error) {
	var problems []error
	bad := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }

	e := &EventType[T]{info: Info{
		Type: s.Type, Description: s.Description, Owner: s.Owner, Domain: s.Domain, Notes: s.Notes,
		Deprecated: s.Deprecated, Topic: s.Topic, AggregateType: s.AggregateType,
	}}
	if e.info.Domain == "" {
		e.info.Domain, _, _ = strings.Cut(s.Type, ".")
	}
	for _, text := range []struct {
		name, text string
		limit      int
		required   bool
	}{
		{"Type", s.Type, 128, true},
		{"Owner", s.Owner, 128, true},
		{"Domain", e.info.Domain, 128, s.Type != ""},
		{"Topic", s.Topic, 249, false},
		{"AggregateType", s.AggregateType, 64, false},
	} {
		if p := textcheck.NameProblem(text.text, text.limit, text.required); p != "" {
			bad("%s %s", text.name, p)
		}
	}
	if strings.TrimSpace(s.Description) == "" {
		bad("Description is empty: say in a sentence what happened")
	}

	e.addVersions(bad, s)
	if len(problems) == 0 { // the examples need sound versions
		t := reflect.TypeFor[T]()
		e.info.Aggregate, e.aggregate = tagged(bad, t, "aggregate")
		e.info.Key, e.key = tagged(bad, t, "key")
	}
	if len(problems) == 0 {
		e.addExamples(bad, s)
	}
	if len(problems) > 0 {
		return nil, fmt.Errorf("%w: event type %q: %w", errDeclaration, s.Type, errors.Join(problems...))
	}
	return e, nil
}

func (e *EventType[T]) addVersions(bad func(string, ...any), s Spec[T]) {
	next := 0
	for i, o := range s.Older {
		if o.read.decode == nil {
			bad("Older[%d] is empty: use From", i)
			return
		}
		switch {
		case o.read.number < 1:
			bad("Older[%d] is version %d: versions start at 1", i, o.read.number)
		case next != 0 && o.read.number != next:
			bad("Older[%d] is version %d, and should be %d: versions ascend without a gap", i, o.read.number, next)
		}
		next = o.read.number + 1
		e.versions = append(e.versions, o.read)
		e.info.Versions = append(e.info.Versions, Version{Number: o.read.number, Type: o.in, Example: o.example})
	}
	number := s.Version
	switch {
	case number == 0:
		number = max(next, 1)
	case number < 1:
		bad("Version %d: versions start at 1", number)
	case next != 0 && number != next:
		bad("Version is %d, and the last of Older is %d: versions ascend without a gap", number, next-1)
	}
	t := reflect.TypeFor[T]()
	e.versions = append(e.versions, version{number: number, decode: decodeAs[T], check: checkerOf(t)})
	e.info.Version = number
	e.info.Versions = append(e.info.Versions, Version{Number: number, Type: t, Example: s.Example})
	for i, v := range e.info.Versions {
		if v.Type.Kind() != reflect.Struct {
			bad("the data of version %d is a %s: use a struct, which can get further fields", v.Number, v.Type)
		}
		if i+1 < len(e.info.Versions) && e.versions[i].out != e.info.Versions[i+1].Type {
			bad("From(%d) returns a %s, and version %d is a %s", v.Number, e.versions[i].out,
				e.info.Versions[i+1].Number, e.info.Versions[i+1].Type)
		}
	}
}

// addExamples encodes each example, and reads it as a consumer does.
func (e *EventType[T]) addExamples(bad func(string, ...any), s Spec[T]) {
	for i := range e.info.Versions {
		v := &e.info.Versions[i]
		name := "Example"
		if i < len(s.Older) {
			name = fmt.Sprintf("the example of From(%d)", v.Number)
		}
		if reflect.ValueOf(v.Example).IsZero() && v.Type.NumField() > 0 {
			bad("%s is empty: give a typical value", name)
			continue
		}
		value := reflect.New(v.Type) // as in Event
		value.Elem().Set(reflect.ValueOf(v.Example))
		payload, _, err := core.JSON.Encode(context.Background(), value.Interface())
		if err != nil {
			bad("%s is not encoded: %w", name, err)
			continue
		}
		v.ExampleJSON = payload
		if _, err := e.decode(v.Number, payload); err != nil {
			bad("%s is not read back: %w", name, err)
		}
	}
	if refused, ok := e.Event(s.Example).Data.(refusedData); ok {
		bad("Example: %w", refused.err)
	}
}

// Event returns an event with a copy of data, as a *T: Type, SchemaVersion, Topic, AggregateType,
// and AggregateID and Key if fields are tagged so. Set its further fields, such as TenantID, before
// it is published. The content type comes from the outbox's codec.
//
// Publish refuses the event with core.ErrInvalidEvent, before anything is written, if a tagged
// field is empty, or if T has a method Validate() error that returns an error.
func (e *EventType[T]) Event(data T) core.Event {
	ev := core.Event{
		Type: e.info.Type, SchemaVersion: e.info.Version, Topic: e.info.Topic,
		AggregateType: e.info.AggregateType,
		Data:          &data, // by its address, so that encoding/json calls MarshalJSON of pointers too
	}
	v := reflect.ValueOf(&data).Elem()
	err := validate(&data)
	for _, f := range []struct {
		read func(reflect.Value) (string, error)
		into *string
	}{{e.aggregate, &ev.AggregateID}, {e.key, &ev.Key}} {
		if f.read == nil {
			continue
		}
		text, fieldErr := f.read(v)
		err = errors.Join(err, fieldErr)
		*f.into = text
	}
	if err != nil {
		ev.Data = refusedData{fmt.Errorf("contract of %s, version %d: %w", e.info.Type, e.info.Version, err)}
	}
	return ev
}

// refusedData carries the error of Event to Publish, which cannot encode it.
type refusedData struct{ err error }

// MarshalJSON returns the error.
func (r refusedData) MarshalJSON() ([]byte, error) { return nil, r.err }

// MarshalText returns the error, to a codec that does not use MarshalJSON.
func (r refusedData) MarshalText() ([]byte, error) { return nil, r.err }

// validate calls the method Validate of the data, if it has one.
func validate[T any](data *T) error {
	if v, ok := any(data).(interface{ Validate() error }); ok {
		return v.Validate()
	}
	return nil
}

// Info returns the declaration. Generators need it.
func (e *EventType[T]) Info() Info {
	info := e.info
	info.Versions = append([]Version(nil), e.info.Versions...)
	return info
}

// Older is a version before T's. From makes it.
type Older struct {
	in      reflect.Type
	example any
	read    version
}

// From declares an older version, with an example, and the function that turns its data into the
// next version's. The function depends on nothing but the data. Its error makes the event dead,
// unless it is marked otherwise (core.Transient).
func From[Old, Next any](number int, example Old, up func(Old) (Next, error)) Older {
	o := Older{in: reflect.TypeFor[Old](), example: example}
	if up == nil {
		return o // Define refuses it
	}
	o.read = version{
		number: number, out: reflect.TypeFor[Next](), decode: decodeAs[Old], check: checkerOf(o.in),
		up: func(v any) (any, error) { return up(v.(Old)) },
	}
	return o
}

func decodeAs[T any](payload []byte) (any, error) {
	var data T
	err := json.Unmarshal(payload, &data)
	return data, err
}
