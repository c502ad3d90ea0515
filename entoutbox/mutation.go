package entoutbox

import (
	"context"
	"fmt"
	"reflect"
	"strconv"
	"sync"

	"entgo.io/ent"
	"entgo.io/ent/privacy"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/adapter"
)

// idOf returns the id of the mutation's entity as text, "" when it is not known yet. ok is false
// when the type has no id. A generated mutation has a method ID() (T, bool) with its own type T,
// which the interface ent.Mutation cannot name.
func idOf(m ent.Mutation) (id string, ok bool) {
	switch m := m.(type) { // the usual types need no reflection
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

// rawID returns the id of the entity as the mutation has it.
func rawID(m ent.Mutation) (reflect.Value, bool) {
	v := reflect.ValueOf(m)
	i := idMethod(v.Type())
	if i < 0 {
		return reflect.Value{}, false
	}
	out := v.Method(i).Call(nil)
	return out[0], out[1].Bool()
}

// doneOf returns the flag that generated code sets in a mutation when it was executed. told is
// false for a mutation without this flag.
func doneOf(m ent.Mutation) (done, told bool) {
	v := reflect.ValueOf(m)
	if v.Kind() != reflect.Pointer || v.IsNil() || v.Elem().Kind() != reflect.Struct {
		return false, false
	}
	f := v.Elem().FieldByName("done")
	if !f.IsValid() || f.Kind() != reflect.Bool {
		return false, false
	}
	return f.Bool(), true
}

// entityOf reads an entity in the transaction of the mutation, past privacy policies: with
// m.Client().Order.Get(ctx, id). ok is false when the mutation has no such client.
func entityOf(ctx context.Context, m ent.Mutation, id reflect.Value) (entity ent.Value, ok bool, err error) {
	client := reflect.ValueOf(m).MethodByName("Client")
	if !client.IsValid() || client.Type().NumIn() != 0 || client.Type().NumOut() != 1 {
		return nil, false, nil
	}
	c := client.Call(nil)[0]
	if c.Kind() != reflect.Pointer || c.IsNil() || c.Elem().Kind() != reflect.Struct {
		return nil, false, nil
	}
	typed := c.Elem().FieldByName(m.Type())
	if !typed.IsValid() {
		return nil, false, nil
	}
	get := typed.MethodByName("Get")
	if !get.IsValid() || get.Type().NumIn() != 2 || get.Type().NumOut() != 2 || get.Type().In(1) != id.Type() {
		return nil, false, nil
	}
	out := get.Call([]reflect.Value{reflect.ValueOf(privacy.DecisionContext(ctx, privacy.Allow)), id})
	if err, _ := reflect.TypeAssert[error](out[1]); err != nil {
		return nil, true, err
	}
	return out[0].Interface(), true, nil
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
	if m, ok := t.MethodByName("ID"); ok && m.Type.NumIn() == 1 && m.Type.NumOut() == 2 &&
		m.Type.Out(1).Kind() == reflect.Bool {
		i = m.Index
	}
	idMethods.Store(t, i)
	return i
}

func idText(v any) string {
	if text, err := adapter.KeyText(v); err == nil {
		return text
	}
	return fmt.Sprint(v)
}

// txOfMutation returns the transaction in which a mutation will be executed.
func (o *Outbox) txOfMutation(ctx context.Context, m ent.Mutation) (*tx, error) {
	if conn, ok := m.(Conn); ok {
		t, err := find(ctx, conn)
		return o.checked(ctx, t, err)
	}
	s := scopeOf(ctx)
	if s == nil {
		return nil, fmt.Errorf("%w: use WithTx, or generate the client with the feature sql/execquery",
			core.ErrNoTransaction)
	}
	in, ok := generatedTx(m)
	if !ok {
		return nil, fmt.Errorf("%w: it is not in the one of WithTx: use the tx that WithTx gives",
			core.ErrNoTransaction)
	}
	if there, here := driverIn(in), driverIn(reflect.ValueOf(s.user)); there != here && there != 0 && here != 0 {
		return nil, fmt.Errorf("%w: it is in another one than that of WithTx: use the tx that WithTx gives",
			core.ErrNoTransaction)
	}
	return o.checked(ctx, s.tx, nil)
}

// checked refuses a transaction in which the events of this outbox cannot be written.
func (o *Outbox) checked(ctx context.Context, t *tx, err error) (*tx, error) {
	if err == nil {
		err = o.own.Check(ctx, t.core)
	}
	return t, err
}

// generatedTx calls the method Tx of a generated mutation, which returns a generated type.
func generatedTx(m ent.Mutation) (reflect.Value, bool) {
	method := reflect.ValueOf(m).MethodByName("Tx")
	if !method.IsValid() || method.Type().NumIn() != 0 || method.Type().NumOut() != 2 {
		return reflect.Value{}, false
	}
	out := method.Call(nil)
	return out[0], out[1].IsNil()
}

// driverIn returns the address of the driver of a generated transaction. All clients of the
// transaction share it. It returns 0 when it does not find a driver.
func driverIn(generated reflect.Value) uintptr {
	if generated.Kind() != reflect.Pointer || generated.Elem().Kind() != reflect.Struct {
		return 0
	}
	config := generated.Elem().FieldByName("config")
	if config.Kind() != reflect.Struct {
		return 0
	}
	driver := config.FieldByName("driver")
	if driver.Kind() != reflect.Interface || driver.Elem().Kind() != reflect.Pointer {
		return 0
	}
	return driver.Elem().Pointer()
}
