package entoutbox

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"strings"

	"entgo.io/ent"
	entsql "entgo.io/ent/dialect/sql"
	"entgo.io/ent/privacy"

	"github.com/ormoutbox/ormoutbox/core"
)

// OnOption changes what On makes.
type OnOption func(*onOptions)

type onOptions struct{ resolve bool }

func optionsOf(options []OnOption) (o onOptions) {
	for _, set := range options {
		if set != nil {
			set(&o)
		}
	}
	return o
}

// ResolveRows lets updates and deletes of many pass, such as client.Order.Update().Where(...). The entities that the mutation is
// about to change are found and locked first (SELECT ... FOR UPDATE, past privacy policies), the mutation is bound to their ids, and
// On functions are called for each of them, with the entity as it is after the update, or as it was before it was deleted.
//
// That costs one SELECT of the ids and one for each entity; Config.MaxResolvedRows bounds them. Other mutations cost what they
// always do. Conditions that look at other rows, such as those on edges, are refused everywhere but on SQLite: what they find is not
// locked. It holds for all functions of a Hook that see the mutation.
func ResolveRows() OnOption { return func(o *onOptions) { o.resolve = true } }

const defaultMaxResolvedRows = 1000

// resolve executes an update or delete of many, and captures it entity by entity.
func (c *call) resolve(ctx context.Context, next ent.Mutator) (ent.Value, error) {
	t, err := txOfMutation(ctx, c.mutation)
	if err != nil {
		return nil, fmt.Errorf("outbox: %s of %s causes events: %w", c.op, c.mutation.Type(), err)
	}
	c.byKeys = true
	return c.run(ctx, t, func(context.Context) (ent.Value, error) { return c.resolved(ctx, next) })
}

// resolved is what run executes in place of the mutation.
func (c *call) resolved(ctx context.Context, next ent.Mutator) (ent.Value, error) {
	inner := c.context(ctx)
	ids, err := c.bind(inner)
	if err != nil {
		return nil, err
	}
	entities := make([]ent.Value, len(ids))
	if c.op == core.OpDelete {
		if err := c.load(inner, ids, entities); err != nil {
			return nil, err
		}
	}
	v, err := next.Mutate(inner, c.mutation)
	if err != nil || v == 0 || !c.executed() {
		return v, err
	}
	n, ok := v.(int)
	if c.op == core.OpUpdate && c.tx.driver.dialect == core.MySQL && n < len(ids) {
		n = len(ids) // it does not count those that are as they shall be
	}
	if !ok || n != len(ids) {
		return nil, c.unknown(fmt.Errorf("%d were found and locked before, and %v were changed", len(ids), v))
	}
	if c.op != core.OpDelete {
		if err := c.load(inner, ids, entities); err != nil {
			return nil, err
		}
	}
	var all []core.Event
	for i, id := range ids {
		c.id = idText(id.Interface())
		events, err := c.events(ctx, entities[i])
		if err != nil {
			return nil, err
		}
		all = append(all, events...)
	}
	return v, c.publish(ctx, all)
}

// lock is in the context of the SELECT that finds the ids. It learns from its text what the column is called.
type lock struct {
	call   *call
	column string
}

type lockKey struct{}

// bind asks the mutation which entities it is about, locks them, and has it change no others.
func (c *call) bind(ctx context.Context) ([]reflect.Value, error) {
	method := reflect.ValueOf(c.mutation).MethodByName("IDs")
	bindable, ok := c.mutation.(interface {
		WhereP(conditions ...func(*entsql.Selector))
	})
	if !ok || !method.IsValid() || method.Type().NumIn() != 1 || method.Type().NumOut() != 2 {
		return nil, fmt.Errorf("%w: %s of %s does not say which rows it changes: the type has no ids",
			ErrNoAggregateID, c.mutation.Op(), c.mutation.Type())
	}
	l := &lock{call: c}
	ctx = context.WithValue(privacy.DecisionContext(ctx, privacy.Allow), lockKey{}, l)
	out := method.Call([]reflect.Value{reflect.ValueOf(ctx)})
	if err, _ := reflect.TypeAssert[error](out[1]); err != nil {
		return nil, fmt.Errorf("outbox: find the ids of %s of %s: %w", c.mutation.Op(), c.mutation.Type(), err)
	}
	ids := make([]reflect.Value, out[0].Len())
	values := make([]any, len(ids))
	for i := range ids {
		ids[i] = out[0].Index(i)
		values[i] = ids[i].Interface()
	}
	if limit := c.hook.ob.maxResolved(); len(ids) > limit {
		return nil, fmt.Errorf("%w: %s of %s would change more than %d (Config.MaxResolvedRows)", ErrTooManyRows, c.mutation.Op(), c.mutation.Type(), limit)
	}
	if l.column == "" {
		return nil, fmt.Errorf("%w: the ids of %s of %s were not read in its transaction", ErrNoAggregateID, c.mutation.Op(), c.mutation.Type())
	}
	bindable.WhereP(func(s *entsql.Selector) { s.Where(entsql.In(s.C(l.column), values...)) })
	return ids, nil
}

func (o *Outbox) maxResolved() int { return cmp.Or(o.cfg.MaxResolvedRows, defaultMaxResolvedRows) }

func (c *call) load(ctx context.Context, ids []reflect.Value, into []ent.Value) error {
	for i, id := range ids {
		entity, ok, err := entityOf(ctx, c.mutation, id)
		if err == nil && !ok {
			err = fmt.Errorf("%T has no client that reads entities", c.mutation)
		}
		if err != nil {
			return fmt.Errorf("%w: read %s %s, which is to be reported: %w",
				ErrNoAggregateID, c.mutation.Type(), idText(id.Interface()), err)
		}
		into[i] = entity
	}
	return nil
}

// locking makes the SELECT that finds ids lock what it finds: SELECT "orders"."id" FROM "orders" WHERE ...
func (t *tx) locking(ctx context.Context, query string) (string, error) {
	l, ok := ctx.Value(lockKey{}).(*lock)
	if !ok || l.column != "" {
		return query, nil
	}
	list, rest, ok := strings.Cut(query, " FROM ")
	list, selects := strings.CutPrefix(list, "SELECT ")
	if !ok || !selects || strings.Contains(list, ", ") {
		return query, nil
	}
	m := l.call.mutation
	l.column = strings.Trim(list[strings.LastIndexByte(list, '.')+1:], "\"`")
	if t.driver.dialect == core.SQLite {
		// A transaction that has read cannot always begin to write. This takes the lock of the one writer, and changes nothing.
		table, _, _ := strings.Cut(rest, " ")
		if err := t.Exec(context.WithoutCancel(ctx), "DELETE FROM "+table+" WHERE 1 = 0", []any{}, nil); err != nil {
			return "", fmt.Errorf("lock %s: %w", table, err)
		}
		return fmt.Sprintf("%s LIMIT %d", query, l.call.hook.ob.maxResolved()+1), nil
	}
	if strings.Contains(rest, "SELECT ") {
		return "", fmt.Errorf("%w: the condition of %s of %s looks at other rows, which are not locked: change entities one by one",
			ErrNoAggregateID, m.Op(), m.Type())
	}
	return fmt.Sprintf("%s LIMIT %d FOR UPDATE", query, l.call.hook.ob.maxResolved()+1), nil
}
