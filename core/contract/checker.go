package contract

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
)

// checker finds required fields that are missing, which encoding/json would leave at zero. It
// follows the type of the data, and stops at types that read themselves.
type checker struct {
	fields   []checkedField // fields of a struct
	to       *checker       // type that a pointer points to
	elem     *checker       // elements of a slice, an array or a map
	list     bool           // a slice or an array
	mapped   bool           // a map
	nullable bool
}

type checkedField struct {
	name     string
	required bool
	value    *checker
}

func checkerOf(t reflect.Type) *checker { return newChecker(t, map[reflect.Type]*checker{}) }

func newChecker(t reflect.Type, known map[reflect.Type]*checker) *checker {
	if c, ok := known[t]; ok { // a type that contains itself, too
		return c
	}
	c := &checker{}
	known[t] = c
	switch {
	case t == timeType:
		return c
	case unmarshals(t, jsonUnmarshaler):
		c.nullable = true // its UnmarshalJSON decides
		return c
	case unmarshals(t, textUnmarshaler):
		c.nullable = t.Kind() == reflect.Pointer
		return c
	}
	switch t.Kind() {
	case reflect.Pointer:
		c.nullable, c.to = true, newChecker(t.Elem(), known)
	case reflect.Interface:
		c.nullable = true
	case reflect.Slice, reflect.Array:
		c.nullable = t.Kind() == reflect.Slice
		if t.Elem().Kind() != reflect.Uint8 { // base64
			c.list, c.elem = true, newChecker(t.Elem(), known)
		}
	case reflect.Map:
		c.nullable, c.mapped, c.elem = true, true, newChecker(t.Elem(), known)
	case reflect.Struct:
		for _, f := range Fields(t) {
			c.fields = append(c.fields, checkedField{f.Name, !f.Optional, newChecker(f.Struct.Type, known)})
		}
	default:
	}
	return c
}

func (c *checker) check(payload []byte) error {
	var v any
	if err := json.Unmarshal(payload, &v); err != nil {
		return err
	}
	if v == nil {
		return errors.New("it is null")
	}
	return c.value("", v)
}

// value reports the first problem of v. A value of another kind than the type is left to
// encoding/json, which returns an error.
func (c *checker) value(path string, v any) error {
	if c.to != nil && v != nil {
		return c.to.value(path, v)
	}
	switch v := v.(type) {
	case nil:
		if !c.nullable {
			return fmt.Errorf("field %s is null", path)
		}
	case []any:
		if !c.list {
			return nil
		}
		for i, e := range v {
			if err := c.elem.value(fmt.Sprintf("%s[%d]", path, i), e); err != nil {
				return err
			}
		}
	case map[string]any:
		if path != "" {
			path += "."
		}
		if c.mapped {
			for name, e := range v {
				if err := c.elem.value(path+name, e); err != nil {
					return err
				}
			}
			return nil
		}
		for _, f := range c.fields {
			e, ok := v[f.name]
			switch {
			case ok:
				if err := f.value.value(path+f.name, e); err != nil {
					return err
				}
			case f.required:
				return fmt.Errorf("field %s%s is missing", path, f.name)
			}
		}
	}
	return nil
}
