package entoutbox

import (
	"cmp"
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
	takes func(m ent.Mutation) bool
	fn    func(ctx context.Context, m ent.Mutation, v ent.Value) ([]core.Event, error)
	err   error
}

// OnMutation makes a Mapper of fn. The type of fn's second parameter decides which mutations fn
// gets:
//
//	entoutbox.OnMutation(func(ctx context.Context, m *ent.OrderMutation, v ent.Value) ([]core.Event, error) { ... })
//
// fn is called once for each row of the mutation's type that a statement of the mutation inserted,
// updated or deleted. v is the entity (*ent.Order) as the database stored it; deleted: as it was.
// fn runs within the transaction, right after the statement, so m does not have the id of a new
// entity yet: v has it. Each entity of a bulk comes with its own mutation. OpOf(ctx) distinguishes
// creates, updates, deletes and upserts. m.Client() reads in the same transaction with ctx. An
// error of fn becomes the error of the mutation; roll the transaction back then. Other hooks must
// pass their context on to the next one.
//
// If the type is the interface ent.Mutation, fn gets the mutations of all types. Rows of other
// types that a mutation changes because of an edge have no mutation: On sees them.
func OnMutation[M ent.Mutation](
	fn func(ctx context.Context, m M, v ent.Value) ([]core.Event, error),
) Mapper {
	if fn == nil {
		return Mapper{err: fmt.Errorf("outbox: OnMutation[%s] was given a nil function", reflect.TypeFor[M]())}
	}
	return Mapper{
		takes: func(m ent.Mutation) bool { _, ok := m.(M); return ok },
		fn: func(ctx context.Context, m ent.Mutation, v ent.Value) ([]core.Event, error) {
			return fn(ctx, m.(M), v)
		},
	}
}

// OpOf returns the operation of the row for which an On function is called. ctx is the context that
// the function got. A create that may have updated its row (OnConflict) is OpUpsert, and one that
// passes over existing rows (DoNothing) is OpCreate. Elsewhere OpOf returns 0.
func OpOf(ctx context.Context) core.Op {
	op, _ := ctx.Value(opKey{}).(core.Op)
	return op
}

type opKey struct{}

// Hook returns a hook for client.Use that registers the client with the outbox, and the mappers for
// mutations. The statements of the client then cause events, in their transaction: by the functions
// of On and OnContext, and by the mappers. Outside of transactions, a statement that causes events
// gets a transaction of its own. A statement whose events could not be written is refused before it
// is executed: with core.ErrOtherDatabase if the client is on another database than the outbox, and
// with core.ErrNotInstalled if it is not on Driver.
//
// An event without an AggregateID gets the id of its entity. A nil function is reported by every
// mutation, and by Publish and Run. A client that has several hooks of one outbox calls the
// functions of On once, and the mappers of each hook. client.Order.Use gives the mappers only the
// mutations of one type; functions of On see all types from the first such mutation on.
func (o *Outbox) Hook(mappers ...Mapper) ent.Hook {
	h := &hook{ob: o, mappers: mappers}
	for _, m := range mappers {
		if m.fn == nil {
			o.own.Mappers.Fail(cmp.Or(m.err, errMapper))
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

var errMapper = errors.New("outbox: Hook was given a Mapper that OnMutation did not make")

// hook is the result of one call of Hook.
type hook struct {
	ob      *Outbox
	mappers []Mapper
}

func (h *hook) mutate(ctx context.Context, m ent.Mutation, next ent.Mutator) (v ent.Value, err error) {
	c := callOf(ctx)
	if c == nil || c.mutation != m {
		c = &call{mutation: m, op: opOf(m), within: c}
		ctx = context.WithValue(ctx, callKey{}, c)
	}
	if slices.Contains(c.by, h) {
		return next.Mutate(ctx, m) // a hook changed its kind, as soft deletes do
	}
	if err := h.ob.learn(ctx, c); err != nil {
		return nil, adapter.CausesEvents(opOf(m), m.Type(), err)
	}
	if !c.driver.enter(ctx, c, h) {
		return next.Mutate(ctx, m)
	}
	defer func() {
		if lost := c.driver.leave(c); lost && err == nil {
			v, err = nil, c.lost(ctx)
		}
	}()
	return next.Mutate(ctx, m)
}

// lost is the error of a mutation whose statement was sent with another context. In a transaction,
// COMMIT is refused.
func (c *call) lost(ctx context.Context) error {
	err := fmt.Errorf("%w: %s of %s was executed without its context, so that its events are not known: "+
		"a hook did not pass its context on", core.ErrNoAggregateID, c.op, c.mutation.Type())
	if p, _ := below(ctx, c.mutation); p.tx != nil {
		p.tx.followed.RefuseCommit(err)
	}
	return err
}

// On registers fn, which derives events from a change of an entity of type T (ent.Order, a
// generated struct). fn is called once for each row that a statement inserted, updated or deleted,
// with the entity as the database stored it; deleted: as it was. Rows that change because of an
// edge are among them. fn runs within the transaction, and must not change the entity. All
// functions of one type are called, in the order of registration. On can be called at any time.
// Mistakes (a nil argument, a T that is no struct) are reported by every mutation, every Publish,
// and by Run. A panic of fn goes on to the program, and the transaction does not commit.
//
// The client must have the hook of ob: client.Use(ob.Hook()). OnMutation is for functions that need
// the mutation itself.
func On[T any](ob *Outbox, fn func(op core.Op, entity *T) []core.Event) {
	adapter.On(ob.registered(), fn)
}

// OnContext is On for functions that need the context of the statement or can return an error.
// Their error becomes the error of the statement; roll the transaction back then.
// core.TxFromContext finds the transaction in ctx, and so does FromContext within WithTx. Every
// client of the outbox's driver works in that transaction with ctx, until it ends.
func OnContext[T any](
	ob *Outbox, fn func(ctx context.Context, op core.Op, entity *T) ([]core.Event, error),
) {
	adapter.OnContext(ob.registered(), fn)
}

// OnAll is OnContext for every type of the clients that have the hook of ob. fn gets a pointer to
// an entity, as the function of OnContext for its type would. except names types that are passed
// over, such as &ent.AuditLog{}. Tables of the outbox and the inbox are passed over too. If the
// database cannot name the rows of a type, because it has no id, the type is left out, and one
// warning is logged.
func OnAll(
	ob *Outbox, fn func(ctx context.Context, op core.Op, entity any) ([]core.Event, error), except ...any,
) {
	adapter.OnAll(ob.registered(), fn, except...)
}

func (o *Outbox) registered() *adapter.Mappers {
	if o == nil || o.own == nil {
		return nil
	}
	return &o.own.Mappers
}
