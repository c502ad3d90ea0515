package sqltx

import (
	"database/sql"
	"reflect"
)

// poolOf returns the pool of a *sql.Tx or a *sql.Conn, nil when it cannot be told. database/sql
// keeps it in a field that it does not export; where that field is another one some day, nothing is
// told.
func poolOf(conn Conn) *sql.DB {
	v := reflect.ValueOf(conn)
	switch conn.(type) {
	case *sql.Tx, *sql.Conn:
	default:
		return nil
	}
	if v.IsNil() {
		return nil
	}
	f := v.Elem().FieldByName("db")
	if !f.IsValid() || f.Type() != reflect.TypeFor[*sql.DB]() {
		return nil
	}
	return (*sql.DB)(f.UnsafePointer())
}
