package gormoutbox

import (
	"context"
	"fmt"
	"reflect"
	"strings"

	"gorm.io/gorm"
	"gorm.io/gorm/schema"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/adapter"
)

// eachElement calls fn with a pointer to each struct that a statement stores. v is a struct or a
// slice of them.
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

// hasRecorder reports whether models of schema s embed a Recorder. It returns an error if their
// Recorder is in a field where its events would be lost.
func (o *Outbox) hasRecorder(s *schema.Schema) (bool, error) {
	return o.own.Recorders.Has(s.ModelType, func(f reflect.StructField) bool {
		if f.Anonymous {
			return false
		}
		_, relation := s.Relationships.Relations[f.Name]
		return relation ||
			f.Type.Kind() == reflect.Pointer && !strings.Contains(strings.ToLower(f.Tag.Get("gorm")), "embedded")
	})
}

// destRecorder returns the Recorder of a model whose values update another one:
// db.Model(&stored).Updates(&changed). It returns one only if it has events. If the model is given
// by value, the Recorder is that of a copy.
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
	r, ok := adapter.RecorderOf(d)
	return r, ok && len(r.Recorded()) > 0
}

// keyOf returns the primary key of a model as text, "" when a part of the key is unset. ok is false
// when the model has no key.
func keyOf(ctx context.Context, s *schema.Schema, model reflect.Value) (key string, ok bool, err error) {
	if len(s.PrimaryFields) == 0 || model.Type().Elem() != s.ModelType {
		return "", false, nil
	}
	var k adapter.Key
	for _, f := range s.PrimaryFields {
		v, zero := f.ValueOf(ctx, model.Elem())
		if err := k.Add(v, zero); err != nil {
			return "", true, fmt.Errorf("outbox: primary key %s.%s: %w", s.Table, f.DBName, err)
		}
	}
	return k.Text(), true, nil
}
