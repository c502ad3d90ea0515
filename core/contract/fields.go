package contract

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Field is a field of a struct as encoding/json writes it. Generators need it.
type Field struct {
	// Name is the name in JSON.
	Name string
	// Optional: the field may be absent, because of omitempty, omitzero or an embedded pointer.
	Optional bool
	// Quoted: a number or a boolean is written as a string, because of the option string.
	Quoted bool
	// PII: the field has the tag contract:"pii".
	PII bool
	// Struct has the type and the tags. Its Index leads from the struct that was asked for.
	Struct reflect.StructField

	named bool // its tag has a name
}

// Fields returns the fields that encoding/json writes for a struct, in their order, including
// fields of embedded structs, except for hidden ones.
func Fields(t reflect.Type) []Field {
	all := collect(t, nil, false, nil)
	byName := map[string][]Field{}
	for _, f := range all {
		byName[f.Name] = append(byName[f.Name], f)
	}
	return slices.DeleteFunc(all, func(f Field) bool {
		return !slices.Equal(dominant(byName[f.Name]), f.Struct.Index)
	})
}

// collect walks through embedded structs. above are the types on the way.
func collect(t reflect.Type, index []int, optional bool, above []reflect.Type) (fields []Field) {
	if slices.Contains(above, t) {
		return nil
	}
	above = append(slices.Clone(above), t)
	for i := range t.NumField() {
		sf := t.Field(i)
		tag := sf.Tag.Get("json")
		name, options, _ := strings.Cut(tag, ",")
		if tag == "-" {
			continue
		}
		elem, pointer := sf.Type, sf.Type.Kind() == reflect.Pointer
		if pointer {
			elem = elem.Elem()
		}
		path := append(slices.Clone(index), i)
		if sf.Anonymous && name == "" && elem.Kind() == reflect.Struct {
			fields = append(fields, collect(elem, path, optional || pointer, above)...)
			continue
		}
		if !sf.IsExported() && (!sf.Anonymous || elem.Kind() != reflect.Struct) {
			continue
		}
		f := Field{Name: name, Optional: optional, Struct: sf, named: name != ""}
		if name == "" {
			f.Name = sf.Name
		}
		for option := range strings.SplitSeq(options, ",") {
			switch option {
			case "omitempty", "omitzero":
				f.Optional = true
			case "string":
				f.Quoted = quotable(elem)
			}
		}
		f.PII = slices.Contains(flags(sf), "pii")
		f.Struct.Index = path
		fields = append(fields, f)
	}
	return fields
}

// dominant returns the index of the field that encoding/json takes if several have the same name:
// the least deep one, then the one with a name in its tag, and none if there are several.
func dominant(same []Field) []int {
	depth := func(f Field) int { return len(f.Struct.Index) }
	least := slices.MinFunc(same, func(a, b Field) int { return depth(a) - depth(b) })
	same = slices.DeleteFunc(slices.Clone(same), func(f Field) bool { return depth(f) > depth(least) })
	if named := slices.DeleteFunc(slices.Clone(same), func(f Field) bool { return !f.named }); len(named) > 0 {
		same = named
	}
	if len(same) != 1 {
		return nil
	}
	return same[0].Struct.Index
}

func quotable(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Bool, reflect.String, reflect.Float32, reflect.Float64, reflect.Int, reflect.Int8, reflect.Int16,
		reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64,
		reflect.Uintptr:
		return true
	default:
		return false
	}
}

// flags are the words of the tag contract.
func flags(sf reflect.StructField) []string {
	tag, ok := sf.Tag.Lookup("contract")
	if !ok {
		return nil
	}
	return strings.Split(tag, ",")
}

// tagged finds the field with a tag, and returns its name in JSON and a function that reads its
// text.
func tagged(bad func(string, ...any), t reflect.Type, flag string) (string, func(reflect.Value) (string, error)) {
	var found []Field
	for _, f := range Fields(t) {
		if slices.Contains(flags(f.Struct), flag) {
			found = append(found, f)
		}
		for _, other := range flags(f.Struct) {
			if flag == "key" && !slices.Contains([]string{"aggregate", "key", "pii"}, other) {
				bad("field %s has the tag contract:%q: there are aggregate, key and pii", f.Struct.Name, other)
			}
		}
	}
	switch {
	case len(found) == 0:
		return "", nil
	case len(found) > 1:
		bad("%d fields have the tag contract:%q: one can", len(found), flag)
		return "", nil
	case !texts(found[0].Struct.Type):
		bad("field %s has the tag contract:%q, and is a %s: a string, an integer or an encoding.TextMarshaler can",
			found[0].Struct.Name, flag, found[0].Struct.Type)
		return "", nil
	}
	name, index := found[0].Name, found[0].Struct.Index
	return name, func(v reflect.Value) (string, error) {
		field, err := v.FieldByIndexErr(index)
		text := ""
		if err == nil && (field.Kind() != reflect.Pointer || !field.IsNil()) {
			if text, err = textOf(field); err != nil {
				return "", fmt.Errorf("field %s: %w", name, err)
			}
		}
		if text == "" {
			return "", fmt.Errorf("field %s is empty, and has the tag contract:%q", name, flag)
		}
		return text, nil
	}
}

var textMarshaler = reflect.TypeFor[encoding.TextMarshaler]()

func texts(t reflect.Type) bool {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case reflect.PointerTo(t).Implements(textMarshaler), t.Kind() == reflect.String:
		return true
	}
	return reflect.Int <= t.Kind() && t.Kind() <= reflect.Uintptr
}

func textOf(v reflect.Value) (string, error) {
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if m, ok := reflect.TypeAssert[encoding.TextMarshaler](v); ok {
		return marshalText(v, m)
	}
	if v.CanAddr() {
		if m, ok := reflect.TypeAssert[encoding.TextMarshaler](v.Addr()); ok {
			return marshalText(v, m)
		}
	}
	switch {
	case v.Kind() == reflect.String:
		return v.String(), nil
	case v.CanInt():
		return strconv.FormatInt(v.Int(), 10), nil
	default:
		return strconv.FormatUint(v.Uint(), 10), nil
	}
}

// marshalText returns no text for a zero value, such as the UUID of zeros.
func marshalText(v reflect.Value, m encoding.TextMarshaler) (string, error) {
	if v.IsZero() {
		return "", nil
	}
	text, err := m.MarshalText()
	return string(text), err
}

var (
	jsonUnmarshaler = reflect.TypeFor[json.Unmarshaler]()
	textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()
	timeType        = reflect.TypeFor[time.Time]()
)

func unmarshals(t reflect.Type, how reflect.Type) bool {
	return t.Implements(how) || reflect.PointerTo(t).Implements(how)
}
