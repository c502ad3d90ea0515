package adapter

import (
	"database/sql/driver"
	"encoding"
	"encoding/hex"
	"fmt"
	"reflect"
	"strings"
	"time"
)

// Key makes the text of a primary key, which becomes the AggregateID of events. The zero value is a
// key without columns.
type Key struct {
	texts []string
	any   bool // a column is set
}

// Add adds a column. zero: the value is the zero value, which counts as unset.
func (k *Key) Add(value any, zero bool) error {
	text, err := keyText(value)
	if err != nil {
		return err
	}
	k.texts = append(k.texts, text)
	k.any = k.any || !zero
	return nil
}

// Text returns the columns joined by commas. It is empty when all of them are unset. In a composite
// key, one column may be zero.
func (k *Key) Text() string {
	if !k.any {
		return ""
	}
	return k.Stored()
}

var escapeKey = strings.NewReplacer(`\`, `\\`, ",", `\,`)

// Stored is Text for a key that was read from a row: it is a key even if all columns are zero. In a
// composite key a backslash goes before each comma and backslash of a column.
func (k *Key) Stored() string {
	if len(k.texts) == 1 {
		return k.texts[0]
	}
	escaped := make([]string, len(k.texts))
	for i, t := range k.texts {
		escaped[i] = escapeKey.Replace(t)
	}
	return strings.Join(escaped, ",")
}

// keyText returns the text of one value. A text stays as it is, and bytes become hex. Other values
// become the result of MarshalText, String or Value (driver.Valuer), or else of fmt.Sprint. A nil
// pointer and a Value of nil become "".
func keyText(v any) (string, error) {
	r := reflect.ValueOf(v)
	if !r.IsValid() || r.Kind() == reflect.Pointer && r.IsNil() {
		return "", nil // calling a method of its element would panic
	}
	switch k := v.(type) {
	case string:
		return k, nil
	case []byte:
		return hex.EncodeToString(k), nil
	case time.Time:
		v = k.UTC() // equal times give equal texts
	case *time.Time:
		v = k.UTC()
	}
	switch k := v.(type) {
	case encoding.TextMarshaler:
		b, err := k.MarshalText()
		return string(b), err
	case fmt.Stringer:
		return k.String(), nil
	case driver.Valuer:
		inner, err := k.Value()
		if err != nil || inner == nil {
			return "", err
		}
		if b, ok := inner.([]byte); ok {
			return hex.EncodeToString(b), nil
		}
		return fmt.Sprint(inner), nil
	}
	if r.Kind() == reflect.Pointer {
		return keyText(r.Elem().Interface())
	}
	if r.Kind() == reflect.Array && r.Type().Elem().Kind() == reflect.Uint8 {
		return fmt.Sprintf("%x", v), nil
	}
	return fmt.Sprint(v), nil
}
