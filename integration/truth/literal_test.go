package truth_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"gorm.io/gorm/clause"

	"github.com/ormoutbox/ormoutbox/core"
)

// raw is code already.
type raw string

// literal returns a value as Go code. Fields with their zero value are left out.
func literal(v any) string {
	if v == nil {
		return "nil"
	}
	return literalOf(reflect.ValueOf(v))
}

func literalOf(v reflect.Value) string {
	if v.Type() == reflect.TypeFor[core.Recorder]() {
		return ""
	}
	if v.CanInterface() {
		switch x := v.Interface().(type) {
		case raw:
			return string(x)
		case clause.Expr:
			return fmt.Sprintf("gorm.Expr(%q)", x.SQL)
		case time.Time:
			return x.UTC().Format(time.RFC3339Nano)
		case condition:
			return strings.TrimSuffix(fmt.Sprintf("%q, ", x.text)+literals(x.args), ", ")
		}
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return "nil"
		}
		if v.Elem().Kind() == reflect.Struct {
			return "&" + literalOf(v.Elem())
		}
		return literalOf(v.Elem())
	case reflect.Struct:
		var fields []string
		for i := range v.NumField() {
			f := v.Type().Field(i)
			if !v.Field(i).IsZero() && f.IsExported() {
				if text := literalOf(v.Field(i)); text != "" {
					fields = append(fields, f.Name+": "+text)
				}
			}
		}
		return v.Type().Name() + "{" + strings.Join(fields, ", ") + "}"
	case reflect.Slice:
		var all []string
		for i := range v.Len() {
			all = append(all, literalOf(v.Index(i)))
		}
		of := strings.ReplaceAll(v.Type().Elem().String(), "truth_test.", "")
		return "[]" + of + "{" + strings.Join(all, ", ") + "}"
	case reflect.Map:
		var all []string
		for _, k := range v.MapKeys() {
			all = append(all, literalOf(k)+": "+literalOf(v.MapIndex(k)))
		}
		slices.Sort(all)
		return "map[string]any{" + strings.Join(all, ", ") + "}"
	case reflect.String:
		return fmt.Sprintf("%q", v.String())
	default:
		return fmt.Sprint(v)
	}
}

func literals(all []any) string {
	texts := make([]string, len(all))
	for i, v := range all {
		texts[i] = literal(v)
	}
	return strings.Join(texts, ", ")
}

// code is fmt.Sprintf with each argument as a literal.
func code(format string, args ...any) string {
	texts := make([]any, len(args))
	for i, v := range args {
		texts[i] = literal(v)
	}
	return fmt.Sprintf(format, texts...)
}
