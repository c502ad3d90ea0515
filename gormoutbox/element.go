package gormoutbox

import (
	"context"
	"database/sql/driver"
	"encoding"
	"encoding/hex"
	"fmt"
	"reflect"
	"strings"

	"gorm.io/gorm"
	"gorm.io/gorm/schema"

	"github.com/ormoutbox/ormoutbox/core"
)

// eachElement calls fn with a pointer to each struct in v, which is what a statement stores: one or
// a slice of them.
func eachElement(v reflect.Value, fn func(model reflect.Value)) {
	for v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
		if v.IsNil() {
			return
		}
		v = v.Elem()
	}
	switch v.Kind() {
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			eachElement(v.Index(i), fn)
		}
	case reflect.Struct:
		if v.CanAddr() {
			fn(v.Addr())
			return
		}
		p := reflect.New(v.Type())
		p.Elem().Set(v)
		fn(p)
	default:
	}
}

// isSlice reports whether a statement stores several models.
func isSlice(v reflect.Value) bool {
	for v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	return v.Kind() == reflect.Slice || v.Kind() == reflect.Array
}

// hasRecorder reports whether models of schema s embed a Recorder. An error says that they have one
// where nobody finds it.
func (o *Outbox) hasRecorder(s *schema.Schema) (bool, error) {
	t := s.ModelType
	if t == nil || t.Kind() != reflect.Struct {
		return false, nil
	}
	known, ok := o.recorders.Load(t)
	if !ok {
		found := recorderType{embedded: reflect.PointerTo(t).Implements(recorderMethods)}
		found.err = core.CheckModel(t, func(f reflect.StructField) bool {
			if f.Anonymous {
				return false
			}
			_, relation := s.Relationships.Relations[f.Name]
			return relation || f.Type.Kind() == reflect.Pointer && !strings.Contains(strings.ToLower(f.Tag.Get("gorm")),
				"embedded")
		})
		known, _ = o.recorders.LoadOrStore(t, found)
	}
	found := known.(recorderType)
	return found.embedded, found.err
}

type recorderType struct {
	embedded bool
	err      error
}

// recorderMethods are what a model has that embeds a Recorder.
var recorderMethods = reflect.TypeFor[interface {
	Record(...any)
	Recorded() []core.Event
	HandOver() ([]core.Event, func(core.Outcome), error)
}]()

func recorderOf(model reflect.Value) (*core.Recorder, bool) {
	if !model.CanInterface() {
		return nil, false
	}
	return core.RecorderOf(model.Interface())
}

// destRecorder finds the recorder of a model that updates another:
// db.Model(&stored).Updates(&changed). When it has nothing there is none. Of a value, it is that of
// a copy.
func destRecorder(stmt *gorm.Statement) (*core.Recorder, bool) {
	d := reflect.ValueOf(stmt.Dest)
	m := reflect.ValueOf(stmt.Model)
	switch {
	case d.Kind() == reflect.Pointer && !d.IsNil() && d.Elem().Kind() == reflect.Struct:
		if m.Kind() == reflect.Pointer && m.Pointer() == d.Pointer() {
			return nil, false
		}
	case d.Kind() == reflect.Struct:
		p := reflect.New(d.Type())
		p.Elem().Set(d)
		d = p
	default:
		return nil, false
	}
	r, ok := recorderOf(d)
	return r, ok && len(r.Recorded()) > 0
}

// keyOf returns the primary key of a model as text, "" when a part of it is unset. ok is false when
// the model has no key.
func keyOf(ctx context.Context, s *schema.Schema, model reflect.Value) (key string, ok bool, err error) {
	if len(s.PrimaryFields) == 0 || model.Type().Elem() != s.ModelType {
		return "", false, nil
	}
	parts := make([]string, 0, len(s.PrimaryFields))
	unset := 0
	for _, f := range s.PrimaryFields {
		v, zero := f.ValueOf(ctx, model.Elem())
		if zero {
			unset++
		}
		text, err := keyText(v)
		if err != nil {
			return "", true, fmt.Errorf("outbox: primary key %s.%s: %w", s.Table, f.DBName, err)
		}
		parts = append(parts, text)
	}
	if unset == len(parts) {
		return "", true, nil // a zero is fine as a part of a composite key
	}
	return strings.Join(parts, ","), true, nil
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
