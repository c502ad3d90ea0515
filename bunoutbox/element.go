package bunoutbox

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/uptrace/bun/schema"

	"github.com/ormoutbox/ormoutbox/core/adapter"
	"github.com/ormoutbox/ormoutbox/core/adapter/capture"
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

// recording returns the models of a statement, or nil if none of them has recorded events.
func recording(gen schema.QueryGen, table *schema.Table, value any) ([]capture.Model, error) {
	var models []capture.Model
	found := false
	for _, el := range elements(value) {
		r, pending, err := adapter.Pending(el)
		if err != nil {
			return nil, err
		}
		m := capture.Model{Value: el}
		if pending {
			m.Recorder, found = r, true
		}
		if key := literals(gen, table, el.Elem()); key != nil {
			m.Keys = [][]any{key}
		}
		models = append(models, m)
	}
	if !found {
		return nil, nil
	}
	return models, nil
}

// literals returns the key of a model as Bun writes it into texts, or nil if the key is zero.
func literals(gen schema.QueryGen, table *schema.Table, model reflect.Value) []any {
	values, set := make([]any, len(table.PKs)), false
	for i, f := range table.PKs {
		values[i] = capture.Literal(f.AppendValue(gen, nil, model))
		set = set || !f.HasZeroValue(model)
	}
	if !set {
		return nil
	}
	return values
}

// columns returns the fields to read. Those of the key come first. Only On functions need the
// others.
func columns(table *schema.Table, all bool) []*schema.Field {
	fields := append([]*schema.Field{}, table.PKs...)
	if !all && len(fields) > 0 {
		return fields
	}
	for _, f := range table.Fields {
		if !f.IsPK {
			fields = append(fields, f)
		}
	}
	return fields
}

// scan makes new models of rows. Hooks of the model do not run.
func scan(table *schema.Table, fields []*schema.Field, rows *capture.Answer) ([]reflect.Value, error) {
	models := make([]reflect.Value, len(rows.Rows))
	for i, row := range rows.Rows {
		models[i] = reflect.New(table.Type)
		for k, f := range fields {
			if err := f.ScanValue(models[i].Elem(), row[k]); err != nil {
				return nil, fmt.Errorf("column %s: %w", f.Name, err)
			}
		}
	}
	return models, nil
}

// apart reports whether a field is a relation, whose models are stored by statements of their own.
func apart(f reflect.StructField) bool {
	if f.Type.Kind() == reflect.Pointer && !f.Anonymous {
		return true
	}
	tag := f.Tag.Get("bun")
	return strings.Contains(tag, "rel:") || strings.Contains(tag, "m2m:")
}

// keyOf returns the primary key of a model that was read from a row, "" if the type has none.
func keyOf(table *schema.Table, model reflect.Value) (string, error) {
	var k adapter.Key
	for _, f := range table.PKs {
		if err := k.Add(f.Value(model.Elem()).Interface(), f.HasZeroValue(model.Elem())); err != nil {
			return "", fmt.Errorf("outbox: primary key %s.%s: %w", table.Name, f.Name, err)
		}
	}
	return k.Stored(), nil
}
