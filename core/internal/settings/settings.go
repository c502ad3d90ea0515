// Package settings copies settings between structs that have fields in common.
package settings

import "reflect"

// Copy sets each field of dst, a pointer to a struct, to the field of the struct src that has its
// name and type.
func Copy(dst, src any) {
	to, from := reflect.ValueOf(dst).Elem(), reflect.ValueOf(src)
	for i := range from.NumField() {
		f := from.Type().Field(i)
		if own, ok := to.Type().FieldByName(f.Name); ok && own.Type == f.Type {
			to.FieldByIndex(own.Index).Set(from.Field(i))
		}
	}
}
