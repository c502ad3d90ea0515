package bunoutbox

import (
	"database/sql/driver"
	"encoding"
	"encoding/hex"
	"fmt"
	"reflect"
	"strings"

	"github.com/uptrace/bun/schema"

	"github.com/ormoutbox/ormoutbox/core"
)

// elements returns a pointer to each struct in the value of a Bun model, which is one or a slice of
// them.
func elements(value any) []reflect.Value {
	v := reflect.ValueOf(value)
	for v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
		if v.IsNil() {
			return nil // Model((*Order)(nil)) names the table only
		}
		v = v.Elem()
	}
	switch v.Kind() {
	case reflect.Struct:
		return []reflect.Value{v.Addr()}
	case reflect.Slice:
		all := make([]reflect.Value, 0, v.Len())
		for i := range v.Len() {
			el := v.Index(i)
			for el.Kind() == reflect.Pointer || el.Kind() == reflect.Interface {
				el = el.Elem()
			}
			if el.Kind() == reflect.Struct {
				all = append(all, el.Addr())
			}
		}
		return all
	default:
		return nil
	}
}

// hasRecorder reports whether models of type t embed a Recorder. One that is where nobody finds it
// is an error.
func (o *Outbox) hasRecorder(t reflect.Type) (bool, error) {
	if known, ok := o.recorders.Load(t); ok {
		err, _ := known.(error)
		return known == true, err
	}
	if err := core.CheckModel(t, apart); err != nil {
		o.recorders.Store(t, err)
		return false, err
	}
	_, ok := recorderOf(reflect.New(t))
	ok = ok || embedsPointer(t)
	o.recorders.Store(t, ok)
	return ok, nil
}

// apart reports whether a field is a relation, whose models are stored by statements of their own.
func apart(f reflect.StructField) bool {
	if f.Type.Kind() == reflect.Pointer && !f.Anonymous {
		return true
	}
	tag := f.Tag.Get("bun")
	return strings.Contains(tag, "rel:") || strings.Contains(tag, "m2m:")
}

// embedsPointer reports whether t embeds a *Recorder, which a new model has not set.
func embedsPointer(t reflect.Type) bool {
	for f := range t.Fields() {
		if f.Anonymous && f.Type == reflect.TypeFor[*core.Recorder]() {
			return true
		}
	}
	return false
}

func recorderOf(model reflect.Value) (*core.Recorder, bool) {
	if !model.CanInterface() {
		return nil, false
	}
	return core.RecorderOf(model.Interface())
}

// keyOf returns the primary key of a model as text, "" when it has none or it is unset.
func keyOf(table *schema.Table, model reflect.Value) (string, error) {
	parts := make([]string, 0, len(table.PKs))
	unset := 0
	for _, f := range table.PKs {
		if f.HasZeroValue(model.Elem()) {
			unset++
		}
		text, err := keyText(f.Value(model.Elem()).Interface())
		if err != nil {
			return "", fmt.Errorf("outbox: primary key %s.%s: %w", table.Name, f.Name, err)
		}
		parts = append(parts, text)
	}
	if unset == len(parts) {
		return "", nil // a zero is fine as a part of a composite key
	}
	return strings.Join(parts, ","), nil
}

func keyText(v any) (string, error) {
	switch k := v.(type) {
	case string:
		return k, nil
	case []byte:
		return hex.EncodeToString(k), nil
	case encoding.TextMarshaler:
		b, err := k.MarshalText()
		return string(b), err
	case fmt.Stringer:
		return k.String(), nil
	case driver.Valuer:
		inner, err := k.Value()
		if err != nil {
			return "", err
		}
		if b, ok := inner.([]byte); ok {
			return hex.EncodeToString(b), nil
		}
		return fmt.Sprint(inner), nil
	}
	r := reflect.ValueOf(v)
	if r.Kind() == reflect.Pointer && !r.IsNil() {
		return keyText(r.Elem().Interface())
	}
	if r.Kind() == reflect.Array && r.Type().Elem().Kind() == reflect.Uint8 {
		return fmt.Sprintf("%x", v), nil
	}
	return fmt.Sprint(v), nil
}
