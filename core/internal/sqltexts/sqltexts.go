// Package sqltexts is for the tests of packages whose statements are fields of a struct.
package sqltexts

import (
	"fmt"
	"reflect"
	"strings"
	"unicode"
)

// Of returns every text in a struct, or in a pointer to one, under the name of its field: insertTx
// is insert_tx. The names of fields of a nested struct begin with the name of that field. An empty
// text is an error, unless its field is named in optional.
func Of(statements any, optional ...string) (map[string]string, error) {
	texts := map[string]string{}
	if err := add(texts, "", reflect.Indirect(reflect.ValueOf(statements)), optional); err != nil {
		return nil, err
	}
	return texts, nil
}

func add(texts map[string]string, name string, v reflect.Value, optional []string) error {
	switch v.Kind() {
	case reflect.String:
		may := false
		for _, o := range optional {
			may = may || name == o
		}
		switch {
		case v.String() != "":
			texts[name] = v.String()
		case !may:
			return fmt.Errorf("statement %s is missing", name)
		}
	case reflect.Interface, reflect.Pointer:
		if v.IsNil() {
			return fmt.Errorf("statement %s is missing", name)
		}
		return add(texts, name, v.Elem(), optional)
	case reflect.Func:
		if v.IsNil() {
			return fmt.Errorf("statement %s is missing", name)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if err := add(texts, join(name, v.Type().Field(i).Name), v.Field(i), optional); err != nil {
				return err
			}
		}
	default: // no text
	}
	return nil
}

func join(name, field string) string {
	var b strings.Builder
	b.WriteString(name)
	for i, r := range field {
		if unicode.IsUpper(r) && b.Len() > 0 || i == 0 && name != "" {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}
