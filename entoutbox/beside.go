package entoutbox

import (
	"context"
	"fmt"
	"reflect"

	"github.com/ormoutbox/ormoutbox/core"
)

// refuseBeside returns an error if ctx carries an open transaction of the client of begin, which
// other code put there under its own key. A second transaction would commit by itself.
func refuseBeside[T Tx](ctx context.Context, begin func(context.Context) (T, error)) error {
	tx, ok := carried[T](ctx)
	if !ok {
		return nil
	}
	p, err := below(ctx, tx)
	if err == nil && p.tx != nil && !p.tx.ended.Load() && p.tx.driver == driverOf(ctx, begin) {
		return fmt.Errorf("%w: the context carries an open %T of the same client, which other code began (entgql's "+
			"Transactioner does), and a second one would commit by itself: to join it, put it into the context with "+
			"entoutbox.Context(ctx, tx) where it begins; to have a second one, take it out with "+
			"ent.NewTxContext(ctx, nil)", core.ErrOtherTransactor, tx)
	}
	return nil // it is over, or of another driver
}

// carried returns the value of type T that ctx carries under the key of other code, which is not
// exported: ent.NewTxContext has one in each generated package. It looks through contexts of the
// standard library only: their parents never change, and the fields of other contexts may. It
// returns the innermost value. If that is nil, there is none.
func carried[T Tx](ctx context.Context) (tx T, ok bool) {
	want := reflect.TypeFor[T]()
	if want.Kind() != reflect.Pointer {
		return tx, false
	}
	for v := reflect.ValueOf(ctx); v.IsValid(); v = parentOf(v) {
		for v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
			v = v.Elem()
		}
		if !v.IsValid() || v.Type() != valueContext {
			continue
		}
		if val := v.FieldByName("val"); val.Kind() == reflect.Interface && val.Elem().IsValid() &&
			val.Elem().Type() == want {
			return reflect.TypeAssert[T](reflect.NewAt(want.Elem(), val.Elem().UnsafePointer()))
		}
	}
	return tx, false
}

// valueContext is the type of what context.WithValue returns a pointer to.
var valueContext = reflect.TypeOf(context.WithValue(context.Background(), scopeKey{}, nil)).Elem()

var contextType = reflect.TypeFor[context.Context]()

// parentOf returns the parent of a context of the standard library, or the zero Value.
func parentOf(v reflect.Value) reflect.Value {
	if pkg := v.Type().PkgPath(); v.Kind() != reflect.Struct || pkg != "context" && pkg != "os/signal" {
		return reflect.Value{}
	}
	for i := range v.NumField() {
		switch f := v.Type().Field(i); {
		case f.Type == contextType:
			return v.Field(i).Elem()
		case f.Anonymous && f.Type.Kind() == reflect.Struct:
			if parent := parentOf(v.Field(i)); parent.IsValid() {
				return parent
			}
		}
	}
	return reflect.Value{}
}
