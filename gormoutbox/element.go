package gormoutbox

import (
	"reflect"
	"strings"

	"gorm.io/gorm/schema"
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
