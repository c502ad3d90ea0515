package core

import (
	"fmt"
	"reflect"
)

// CheckModel returns an error wrapping ErrHiddenRecorder if models of the struct type t have a
// Recorder that RecorderOf does not find, so that its events would never be written. Such a
// Recorder is in a named field, in a field whose struct is saved as a part of the model, or beside
// a second Recorder. apart reports whether a field with a struct, or with a pointer to a struct, is
// a model of its own, such as an association. A nil apart takes named pointers for models of their
// own. Slices and maps always are. For adapters, when they first see a type.
func CheckModel(t reflect.Type, apart func(reflect.StructField) bool) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	visible := reflect.PointerTo(t).Implements(reflect.TypeFor[interface{ outboxRecorder() *Recorder }]())
	if apart == nil {
		apart = func(f reflect.StructField) bool { return f.Type.Kind() == reflect.Pointer && !f.Anonymous }
	}
	c := modelCheck{apart: apart, seen: map[reflect.Type]bool{}}
	c.walk(t, t.Name(), true)
	switch {
	case c.hidden != "":
		return fmt.Errorf("%w: events of %s get lost: embed Recorder in %s itself, without a name", ErrHiddenRecorder,
			c.hidden, t)
	case len(c.embedded) > 1 || len(c.embedded) == 1 && !visible:
		return fmt.Errorf("%w: %s embeds Recorder in several ways (%q): keep one", ErrHiddenRecorder, t, c.embedded)
	}
	return nil
}

type modelCheck struct {
	apart    func(reflect.StructField) bool
	seen     map[reflect.Type]bool
	embedded []string
	hidden   string
}

// walk checks the fields of t. promoted: they are fields of the model too.
func (c *modelCheck) walk(t reflect.Type, path string, promoted bool) {
	if c.seen[t] {
		return
	}
	c.seen[t] = true
	defer delete(c.seen, t)
	for f := range t.Fields() {
		typ, at := f.Type, path+"."+f.Name
		if typ.Kind() == reflect.Pointer {
			typ = typ.Elem()
		}
		switch {
		case typ == reflect.TypeFor[Recorder]():
			if promoted && f.Anonymous {
				c.embedded = append(c.embedded, at)
			} else if c.hidden == "" {
				c.hidden = at
			}
		case typ.Kind() != reflect.Struct || c.apart(f):
		default:
			c.walk(typ, at, promoted && f.Anonymous)
		}
	}
}
