package entoutbox

import (
	"context"
	"reflect"
	"sync"

	"entgo.io/ent"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/adapter"
)

// On registers fn, which derives events from a change of an entity of type T (ent.Order, a
// generated struct). fn gets the entity as it was saved, with generated ids. fn runs within the
// transaction, once for each entity that the database said was changed, and must not change the
// entity. For OpDelete the entity has only its id; with ResolveRows it is the whole entity as it
// was before. All functions of one type are called, in the order of registration. On can be called
// at any time. Mistakes (a nil argument, a T that is no struct) are reported by every mutation,
// every Publish, and by Run. A panic of fn goes on to the program, and the transaction does not
// commit.
//
// The client must have the hook of ob: client.Use(ob.Hook()). OnMutation is for functions that need
// the mutation itself.
func On[T any](ob *Outbox, fn func(op core.Op, entity *T) []core.Event, options ...OnOption) {
	adapter.On(ob.registered(), fn, options...)
}

// OnContext is On for functions that need the context of the mutation or can return an error. Their
// error becomes the error of the mutation; roll the transaction back then. core.TxFromContext finds
// the transaction in ctx, and so does FromContext within WithTx.
func OnContext[T any](
	ob *Outbox, fn func(ctx context.Context, op core.Op, entity *T) ([]core.Event, error), options ...OnOption,
) {
	adapter.OnContext(ob.registered(), fn, options...)
}

func (o *Outbox) registered() *adapter.Mappers {
	if o == nil || o.own == nil {
		return nil
	}
	return &o.own.Mappers
}

// mapperOf returns the functions of On and OnContext for the entities of a mutation.
func (o *Outbox) mapperOf(m ent.Mutation) (Mapper, bool) {
	typ := entityType(m)
	fns, resolve := o.own.Mappers.Of(typ)
	if fns == nil {
		return Mapper{}, false
	}
	return Mapper{resolve: resolve, fn: func(ctx context.Context, m ent.Mutation, v ent.Value) ([]core.Event, error) {
		entity := reflect.ValueOf(v)
		if !entity.IsValid() || entity.Type() != reflect.PointerTo(typ) {
			entity = withID(typ, m)
		}
		var c adapter.Captured
		for _, fn := range fns {
			if err := c.Map(ctx, fn, OpOf(ctx), entity, ""); err != nil {
				return nil, err
			}
		}
		return c.Events(), nil
	}}, true
}

// withID makes an entity that has only the id of the mutation.
func withID(typ reflect.Type, m ent.Mutation) reflect.Value {
	entity := reflect.New(typ)
	id, known := rawID(m)
	if f := entity.Elem().FieldByName("ID"); known && f.CanSet() && id.Type().AssignableTo(f.Type()) {
		f.Set(id)
	}
	return entity
}

type noEntity struct{}

var entityTypes sync.Map // by type of mutation

// entityType returns the type of the entities of a generated mutation. m.Client().Order.Get returns
// a pointer to that type. entityType returns noEntity when it does not find the type.
func entityType(m ent.Mutation) reflect.Type {
	t := reflect.TypeOf(m)
	known, ok := entityTypes.Load(t)
	if !ok {
		known, _ = entityTypes.LoadOrStore(t, entityTypeOf(t, m.Type()))
	}
	return known.(reflect.Type)
}

func entityTypeOf(mutation reflect.Type, name string) reflect.Type {
	none := reflect.TypeFor[noEntity]()
	client, ok := mutation.MethodByName("Client")
	if !ok || client.Type.NumIn() != 1 || client.Type.NumOut() != 1 {
		return none
	}
	c := client.Type.Out(0)
	if c.Kind() != reflect.Pointer || c.Elem().Kind() != reflect.Struct {
		return none
	}
	typed, ok := c.Elem().FieldByName(name)
	if !ok {
		return none
	}
	get, ok := typed.Type.MethodByName("Get")
	if !ok || get.Type.NumOut() != 2 || get.Type.Out(0).Kind() != reflect.Pointer {
		return none
	}
	return get.Type.Out(0).Elem()
}
