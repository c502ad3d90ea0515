package entoutbox

import (
	"context"
	sqldriver "database/sql/driver"
	"encoding"
	"encoding/hex"
	"fmt"
	"reflect"
	"strconv"
	"sync"

	"entgo.io/ent"
)

// idOf returns the id of the entity that a mutation is about as text, "" when it is not known yet. ok is false when the type has none.
// Generated mutations have a method ID() (T, bool) with a T of their own, which the interface ent.Mutation cannot name.
func idOf(m ent.Mutation) (id string, ok bool) {
	switch m := m.(type) { // the usual ones, which need no reflection
	case interface{ ID() (int, bool) }:
		n, known := m.ID()
		return unlessUnknown(strconv.Itoa(n), known), true
	case interface{ ID() (string, bool) }:
		s, known := m.ID()
		return unlessUnknown(s, known), true
	}
	v := reflect.ValueOf(m)
	i := idMethod(v.Type())
	if i < 0 {
		return "", false
	}
	out := v.Method(i).Call(nil)
	if !out[1].Bool() {
		return "", true
	}
	return idText(out[0].Interface()), true
}

func unlessUnknown(id string, known bool) string {
	if !known {
		return ""
	}
	return id
}

var idMethods sync.Map // by type of mutation: the number of its method ID, negative when it has none

func idMethod(t reflect.Type) int {
	if known, ok := idMethods.Load(t); ok {
		return known.(int)
	}
	i := -1
	if m, ok := t.MethodByName("ID"); ok && m.Type.NumIn() == 1 && m.Type.NumOut() == 2 && m.Type.Out(1).Kind() == reflect.Bool {
		i = m.Index
	}
	idMethods.Store(t, i)
	return i
}

func idText(v any) string {
	switch id := v.(type) {
	case string:
		return id
	case []byte:
		return hex.EncodeToString(id)
	case encoding.TextMarshaler:
		if text, err := id.MarshalText(); err == nil {
			return string(text)
		}
	case fmt.Stringer:
		return id.String()
	case sqldriver.Valuer:
		if inner, err := id.Value(); err == nil {
			return idText(inner)
		}
	}
	r := reflect.ValueOf(v)
	if r.Kind() == reflect.Array && r.Type().Elem().Kind() == reflect.Uint8 {
		return fmt.Sprintf("%x", v)
	}
	return fmt.Sprint(v)
}

// txOfMutation returns the transaction that a mutation will be executed in.
func txOfMutation(ctx context.Context, m ent.Mutation) (*tx, error) {
	if conn, ok := m.(Conn); ok {
		return find(ctx, conn)
	}
	s := scopeOf(ctx)
	switch {
	case s == nil:
		return nil, fmt.Errorf("%w: use WithTx, or generate the client with the feature sql/execquery", ErrNoTransaction)
	case !inTransaction(m):
		return nil, fmt.Errorf("%w: it is not in the one of WithTx: use the tx that WithTx gives", ErrNoTransaction)
	}
	return s.tx, nil
}

// inTransaction asks a generated mutation, whose method Tx returns the generated type.
func inTransaction(m ent.Mutation) bool {
	method := reflect.ValueOf(m).MethodByName("Tx")
	if !method.IsValid() || method.Type().NumIn() != 0 || method.Type().NumOut() != 2 {
		return false
	}
	return method.Call(nil)[1].IsNil()
}
