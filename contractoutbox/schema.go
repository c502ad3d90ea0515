package contractoutbox

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/ormoutbox/ormoutbox/core/contract"
)

// draft is the dialect of the schema files.
const draft = "https://json-schema.org/draft/2020-12/schema"

const (
	// piiKeyword marks personal data in a schema.
	piiKeyword = "x-pii"
	// textKeyword names the type that reads a text by its UnmarshalText, which may refuse any.
	textKeyword = "x-text"
)

var known = map[reflect.Type]*jsonschema.Schema{
	reflect.TypeFor[time.Time]():       {Type: "string", Format: "date-time"},
	reflect.TypeFor[json.RawMessage](): {},
	reflect.TypeFor[json.Number]():     {Type: "number"},
	reflect.TypeFor[big.Int]():         {Type: "integer"},
}

var (
	jsonMarshaler = reflect.TypeFor[json.Marshaler]()
	textMarshaler = reflect.TypeFor[encoding.TextMarshaler]()
)

// schemas makes schemas of Go types.
type schemas struct {
	given map[reflect.Type]*jsonschema.Schema
}

func newSchemas(given map[reflect.Type]*jsonschema.Schema) *schemas {
	s := &schemas{given: maps.Clone(known)}
	maps.Copy(s.given, given)
	return s
}

// of returns a new schema for t. above are the structs that t is part of.
func (s *schemas) of(t reflect.Type, above []reflect.Type) (*jsonschema.Schema, error) {
	if given := s.given[t]; given != nil {
		return given.CloneSchemas(), nil
	}
	if t.Kind() == reflect.Pointer {
		elem, err := s.of(t.Elem(), above)
		if err != nil {
			return nil, err
		}
		return nullable(elem), nil
	}
	if marshals(t, jsonMarshaler) {
		return nil, fmt.Errorf("%s has a MarshalJSON: give its schema in Config.Schemas", t)
	}
	if marshals(t, textMarshaler) {
		return &jsonschema.Schema{Type: "string", Extra: map[string]any{textKeyword: t.String()}}, nil
	}
	switch t.Kind() {
	case reflect.Bool:
		return &jsonschema.Schema{Type: "boolean"}, nil
	case reflect.String:
		return &jsonschema.Schema{Type: "string"}, nil
	case reflect.Float32, reflect.Float64:
		return &jsonschema.Schema{Type: "number"}, nil
	case reflect.Int8, reflect.Int16, reflect.Int32:
		limit := float64(uint64(1) << (t.Bits() - 1))
		return integer(-limit, limit-1), nil
	case reflect.Int, reflect.Int64: // no bounds: a float64 cannot say them
		return &jsonschema.Schema{Type: "integer"}, nil
	case reflect.Uint8, reflect.Uint16, reflect.Uint32:
		limit := float64(uint64(1) << t.Bits())
		return integer(0, limit-1), nil
	case reflect.Uint, reflect.Uint64, reflect.Uintptr:
		return &jsonschema.Schema{Type: "integer", Minimum: new(0.0)}, nil
	case reflect.Interface:
		return &jsonschema.Schema{}, nil
	case reflect.Slice, reflect.Array:
		return s.list(t, above)
	case reflect.Map:
		elem, err := s.of(t.Elem(), above)
		if err != nil {
			return nil, err
		}
		object := &jsonschema.Schema{Type: "object", AdditionalProperties: elem, PropertyNames: keysOf(t.Key())}
		return nullable(object), nil
	case reflect.Struct:
		return s.object(t, above)
	default:
		return nil, fmt.Errorf("%s cannot be in JSON", t)
	}
}

// keysOf returns the schema of the keys of a map, or nil if they may be any text.
func keysOf(t reflect.Type) *jsonschema.Schema {
	switch {
	case marshals(t, textMarshaler):
		return &jsonschema.Schema{Extra: map[string]any{textKeyword: t.String()}}
	case t.Kind() == reflect.String:
		return nil
	}
	return inQuotes(t)
}

// inQuotes returns the schema of a number or a boolean in a string.
func inQuotes(t reflect.Type) *jsonschema.Schema {
	s := &jsonschema.Schema{Type: "string"}
	switch t.Kind() {
	case reflect.Bool:
		s.Enum = []any{"true", "false"}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		s.Pattern = `^-?[0-9]+$`
	case reflect.Float32, reflect.Float64:
		s.Pattern = `^-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?$`
	case reflect.String:
		s.Pattern = `^".*"$`
	default:
		s.Pattern = `^[0-9]+$`
	}
	return s
}

func integer(low, high float64) *jsonschema.Schema {
	return &jsonschema.Schema{Type: "integer", Minimum: &low, Maximum: &high}
}

func (s *schemas) list(t reflect.Type, above []reflect.Type) (*jsonschema.Schema, error) {
	if t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8 && !marshals(t.Elem(), jsonMarshaler) &&
		!marshals(t.Elem(), textMarshaler) {
		return nullable(&jsonschema.Schema{Type: "string", ContentEncoding: "base64"}), nil
	}
	elem, err := s.of(t.Elem(), above)
	if err != nil {
		return nil, err
	}
	list := &jsonschema.Schema{Type: "array", Items: elem}
	if t.Kind() == reflect.Array {
		list.MinItems, list.MaxItems = new(t.Len()), new(t.Len())
		return list, nil
	}
	return nullable(list), nil
}

func (s *schemas) object(t reflect.Type, above []reflect.Type) (*jsonschema.Schema, error) {
	if slices.Contains(above, t) {
		return nil, fmt.Errorf("%s contains itself: give its schema in Config.Schemas", t)
	}
	above = append(slices.Clone(above), t)
	object := &jsonschema.Schema{Type: "object", Properties: map[string]*jsonschema.Schema{}}
	var problems []error
	for _, f := range contract.Fields(t) {
		property, err := s.of(f.Struct.Type, above)
		if err == nil {
			property, err = s.field(f, property)
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("field %s: %w", f.Name, err))
			continue
		}
		object.Properties[f.Name] = property
		object.PropertyOrder = append(object.PropertyOrder, f.Name)
		if !f.Optional {
			object.Required = append(object.Required, f.Name)
		}
	}
	return object, errors.Join(problems...)
}

// field applies the tags of a field to the schema of its type.
func (s *schemas) field(f contract.Field, property *jsonschema.Schema) (*jsonschema.Schema, error) {
	tags := f.Struct.Tag
	canBeNull := slices.Contains(property.Types, "null")
	if f.Quoted {
		elem := f.Struct.Type
		if elem.Kind() == reflect.Pointer {
			elem = elem.Elem()
		}
		property = inQuotes(elem)
		if canBeNull {
			property = nullable(property)
		}
	}
	if canBeNull && leftOut(f) {
		property = notNull(property)
	}
	target := property // the elements of a list have the constraints
	if slices.Contains(typesOf(property), "array") && property.Items != nil {
		target = property.Items
	}
	if err := constrain(target, tags); err != nil {
		return nil, err
	}
	if doc := tags.Get("doc"); doc != "" {
		property.Description = doc
	}
	if f.PII {
		property.Extra = maps.Clone(property.Extra)
		if property.Extra == nil {
			property.Extra = map[string]any{}
		}
		property.Extra[piiKeyword] = true
	}
	return property, nil
}

// leftOut reports whether the field is absent when it is nil.
func leftOut(f contract.Field) bool {
	options := strings.Split(f.Struct.Tag.Get("json"), ",")[1:]
	return slices.Contains(options, "omitempty") || slices.Contains(options, "omitzero")
}

func constrain(s *jsonschema.Schema, tags reflect.StructTag) error {
	var problems []error
	each := func(tag string, kinds []string, set func(text string) error) {
		text, ok := tags.Lookup(tag)
		if !ok {
			return
		}
		if !slices.ContainsFunc(kinds, func(k string) bool { return slices.Contains(typesOf(s), k) }) {
			problems = append(problems, fmt.Errorf("tag %s is for %s", tag, strings.Join(kinds, " and ")))
		} else if err := set(text); err != nil {
			problems = append(problems, fmt.Errorf("tag %s:%q: %w", tag, text, err))
		}
	}
	numbers, texts := []string{"number", "integer"}, []string{"string"}
	float := func(into **float64) func(string) error {
		return func(text string) error {
			n, err := strconv.ParseFloat(text, 64)
			*into = &n
			return err
		}
	}
	length := func(into **int) func(string) error {
		return func(text string) error {
			n, err := strconv.ParseUint(text, 10, 31)
			*into = new(int(n))
			return err
		}
	}
	each("minimum", numbers, float(&s.Minimum))
	each("maximum", numbers, float(&s.Maximum))
	each("minLength", texts, length(&s.MinLength))
	each("maxLength", texts, length(&s.MaxLength))
	each("format", texts, func(text string) error { s.Format = text; return nil })
	each("pattern", texts, func(text string) error {
		s.Pattern = text
		_, err := regexp.Compile(text)
		return err
	})
	each("enum", append(texts, numbers...), func(text string) error {
		for value := range strings.SplitSeq(text, ",") {
			if slices.Contains(typesOf(s), "string") {
				s.Enum = append(s.Enum, value)
				continue
			}
			n, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return err
			}
			s.Enum = append(s.Enum, n)
		}
		if slices.Contains(typesOf(s), "null") {
			s.Enum = append(s.Enum, nil)
		}
		return nil
	})
	return errors.Join(problems...)
}

func marshals(t, how reflect.Type) bool {
	return t.Implements(how) || reflect.PointerTo(t).Implements(how)
}

// typesOf returns the types that s names. None: every type.
func typesOf(s *jsonschema.Schema) []string {
	if s.Type != "" {
		return []string{s.Type}
	}
	return s.Types
}

func nullable(s *jsonschema.Schema) *jsonschema.Schema {
	if types := typesOf(s); len(types) > 0 && !slices.Contains(types, "null") {
		s.Type, s.Types = "", append(slices.Clone(types), "null")
		if s.Enum != nil {
			s.Enum = append(slices.Clone(s.Enum), nil)
		}
	}
	return s
}

func notNull(s *jsonschema.Schema) *jsonschema.Schema {
	types := slices.DeleteFunc(slices.Clone(s.Types), func(t string) bool { return t == "null" })
	if s.Types = types; len(types) == 1 {
		s.Type, s.Types = types[0], nil
	}
	return s
}
