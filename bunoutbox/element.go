package bunoutbox

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/uptrace/bun/schema"

	"github.com/ormoutbox/ormoutbox/core/adapter"
)

// elements returns a pointer to each struct in the value of a Bun model: a struct or a slice.
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

// apart reports whether a field is a relation, whose models are stored by statements of their own.
func apart(f reflect.StructField) bool {
	if f.Type.Kind() == reflect.Pointer && !f.Anonymous {
		return true
	}
	tag := f.Tag.Get("bun")
	return strings.Contains(tag, "rel:") || strings.Contains(tag, "m2m:")
}

// keyOf returns the primary key of a model as text, "" when the model has none or the key is unset.
func keyOf(table *schema.Table, model reflect.Value) (string, error) {
	var k adapter.Key
	for _, f := range table.PKs {
		if err := k.Add(f.Value(model.Elem()).Interface(), f.HasZeroValue(model.Elem())); err != nil {
			return "", fmt.Errorf("outbox: primary key %s.%s: %w", table.Name, f.Name, err)
		}
	}
	return k.Text(), nil
}
