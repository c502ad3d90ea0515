package entoutbox

import (
	"reflect"
	"sync"

	"entgo.io/ent"
)

// rawID returns the id of the entity as the mutation has it. A generated mutation has a method ID()
// (T, bool) with its own type T, which the interface ent.Mutation cannot name.
func rawID(m ent.Mutation) (reflect.Value, bool) {
	v := reflect.ValueOf(m)
	i := idMethod(v.Type())
	if i < 0 {
		return reflect.Value{}, false
	}
	out := v.Method(i).Call(nil)
	return out[0], out[1].Bool()
}

var idMethods sync.Map // by type of mutation: the number of its method ID, negative when it has none

func idMethod(t reflect.Type) int {
	if known, ok := idMethods.Load(t); ok {
		return known.(int)
	}
	i := -1
	if m, ok := t.MethodByName("ID"); ok && m.Type.NumIn() == 1 && m.Type.NumOut() == 2 &&
		m.Type.Out(1).Kind() == reflect.Bool {
		i = m.Index
	}
	idMethods.Store(t, i)
	return i
}
