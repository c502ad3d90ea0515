package entoutbox

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"entgo.io/ent"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/adapter"
)

// Mapper derives events from mutations of one type. Make it with OnMutation, and give it to Hook.
type Mapper struct {
	resolve bool                      // ResolveRows
	takes   func(m ent.Mutation) bool // nil: it takes all mutations
	fn      func(ctx context.Context, m ent.Mutation, v ent.Value) ([]core.Event, error)
	err     error
}

// OnMutation makes a Mapper of fn. The type of fn's second parameter decides which mutations fn
// gets:
//
//	entoutbox.OnMutation(func(ctx context.Context, m *ent.OrderMutation, v ent.Value) ([]core.Event, error) { ... })
//
// fn runs in the transaction of the mutation, after it was executed. It runs once for each entity
// of a bulk, and not when nothing was changed. v is the value that the mutation returned. After a
// create, or the update of one entity, v is the stored entity (*ent.Order) with its generated id.
// After the delete of one entity it is the number of rows. With ResolveRows v is the entity for
// updates and deletes of many too: as it is after the update, or as it was before the delete.
// OpOf(ctx) tells creates, updates, deletes and upserts apart. m.Client() reads in the same
// transaction. An error of fn becomes the error of the mutation; roll the transaction back then.
//
// If the type is the interface ent.Mutation, fn gets the mutations of all types.
func OnMutation[M ent.Mutation](
	fn func(ctx context.Context, m M, v ent.Value) ([]core.Event, error), options ...OnOption,
) Mapper {
	if fn == nil {
		return Mapper{err: fmt.Errorf("outbox: OnMutation[%s] was given a nil function", reflect.TypeFor[M]())}
	}
	return Mapper{
		resolve: adapter.Resolves(options),
		takes:   func(m ent.Mutation) bool { _, ok := m.(M); return ok },
		fn: func(ctx context.Context, m ent.Mutation, v ent.Value) ([]core.Event, error) {
			return fn(ctx, m.(M), v)
		},
	}
}

// OpOf returns the operation of the mutation for which an On function is called. ctx is the context
// that the function got. An upsert (OnConflict) is OpUpsert, never OpCreate. Elsewhere OpOf returns
// 0.
func OpOf(ctx context.Context) core.Op {
	op, _ := ctx.Value(opKey{}).(core.Op)
	return op
}

type opKey struct{}

// Hook returns a hook for client.Use (or client.Order.Use) that records the events of mutations, in
// the transaction of the mutation. The events come from the functions of On and OnContext, and from
// the mappers. A mutation that has one of them is refused before it is executed, with one of these
// errors:
//
//   - core.ErrNoTransaction, if it is in no transaction;
//   - core.ErrNoAggregateID, if it does not say which rows it changes (see ResolveRows);
//   - core.ErrOtherDatabase, if it is in another database than the outbox.
//
// Other mutations pass.
//
// An event without an AggregateID gets the id of its entity. A nil function is reported by every
// mutation, and by Publish and Run. A client that has several hooks of one outbox calls the
// functions of On once, and the mappers of each hook.
func (o *Outbox) Hook(mappers ...Mapper) ent.Hook {
	h := &hook{ob: o, mappers: mappers}
	for _, m := range mappers {
		switch {
		case m.err != nil:
			o.own.Mappers.Fail(m.err)
		case m.fn == nil:
			o.own.Mappers.Fail(errors.New("outbox: Hook was given a Mapper that OnMutation did not make"))
		}
	}
	return func(next ent.Mutator) ent.Mutator {
		return ent.MutateFunc(func(ctx context.Context, m ent.Mutation) (ent.Value, error) {
			if err := o.ready(); err != nil {
				return nil, err
			}
			return h.mutate(ctx, m, next)
		})
	}
}

// hook is the result of one call of Hook.
type hook struct {
	ob      *Outbox
	mappers []Mapper
}

// mappersFor returns the functions that a mutation is for. If a hook of the same outbox is around
// this one, that hook calls the functions of On.
func (h *hook) mappersFor(m ent.Mutation, within *call) (all []Mapper) {
	for _, mapper := range h.mappers {
		if mapper.takes(m) {
			all = append(all, mapper)
		}
	}
	for ; within != nil; within = within.within {
		if within.hook.ob == h.ob && within.mutation == m {
			return all
		}
	}
	if mapper, ok := h.ob.mapperOf(m); ok {
		all = append(all, mapper)
	}
	return all
}

func (h *hook) mutate(ctx context.Context, m ent.Mutation, next ent.Mutator) (ent.Value, error) {
	if callOf(ctx).repeats(h, m) {
		return next.Mutate(ctx, m) // a hook changed its kind, as soft deletes do
	}
	c := newCall(ctx, h, m)
	if len(c.mappers) == 0 {
		return next.Mutate(c.context(ctx), m)
	}
	if !c.identify() {
		if slices.ContainsFunc(c.mappers, func(mapper Mapper) bool { return mapper.resolve }) {
			return c.resolve(ctx, next)
		}
		if err := h.ob.keyless(ctx, m, "does not say which rows it changes"); err != nil {
			return nil, err
		}
		return next.Mutate(c.context(ctx), m)
	}
	t, err := h.ob.txOfMutation(ctx, m)
	if err != nil {
		return nil, adapter.CausesEvents(c.op, m.Type(), err)
	}
	return c.run(ctx, t, func(ctx context.Context) (ent.Value, error) { return next.Mutate(ctx, m) })
}

// run executes the mutation and captures it. If the mutation fails or panics after it has changed a
// row, run makes the transaction fail.
func (c *call) run(ctx context.Context, t *tx,
	execute func(context.Context) (ent.Value, error),
) (v ent.Value, err error) {
	c.begin(t)
	returned := false
	defer func() {
		if !returned {
			_ = c.end(ctx, adapter.ErrPanicked)
		}
	}()
	if v, err = execute(c.context(ctx)); err == nil {
		if err = c.capture(ctx, v); err != nil {
			v = nil
		}
	}
	returned = true
	return v, c.end(ctx, err)
}

// keyless returns an error if Config.AllowKeyless does not allow a mutation that has mappers and
// does not say which rows it changes.
func (o *Outbox) keyless(ctx context.Context, m ent.Mutation, why string) error {
	if o.own.AllowsKeyless(ctx, m.Type(), opOf(m), m.Type()) {
		return nil
	}
	return adapter.UnknownRows(opOf(m), m.Type(), why+", and On functions are registered for them",
		"change entities one by one, register On with entoutbox.ResolveRows(), call Publish, or set "+
			"Config.AllowKeyless")
}
