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

// eachElement calls fn with a pointer to each struct in v, which is what a statement stores: one or a slice of them.
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

// hasRecorder reports whether models of type t embed a Recorder.
func (o *Outbox) hasRecorder(t reflect.Type) bool {
	if t == nil || t.Kind() != reflect.Struct {
		return false
	}
	if known, ok := o.recorders.Load(t); ok {
		return known.(bool)
	}
	_, ok := recorderOf(reflect.New(t))
	ok = ok || embedsPointer(t)
	o.recorders.Store(t, ok)
	return ok
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

// destRecorder finds the recorder of a model that updates another: db.Model(&stored).Updates(&changed).
func destRecorder(stmt *gorm.Statement) (*core.Recorder, bool) {
	d := reflect.ValueOf(stmt.Dest)
	if d.Kind() != reflect.Pointer || d.IsNil() || d.Elem().Kind() != reflect.Struct {
		return nil, false
	}
	m := reflect.ValueOf(stmt.Model)
	if m.Kind() == reflect.Pointer && m.Pointer() == d.Pointer() {
		return nil, false
	}
	return recorderOf(d)
}

// keyOf returns the primary key of a model as text, "" when a part of it is unset. ok is false when the model has no key.
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
