package entoutbox

import (
	"context"
	"fmt"
	"reflect"
	"strings"

	"entgo.io/ent"
	entsql "entgo.io/ent/dialect/sql"
	"entgo.io/ent/privacy"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/adapter"
)

// OnOption changes how On, OnContext and OnMutation register a function.
type OnOption = adapter.OnOption

// ResolveRows lets updates and deletes of many pass, such as client.Order.Update().Where(...). The
// entities that the mutation is about to change are found and locked first (SELECT ... FOR UPDATE,
// past privacy policies), and the mutation is bound to their ids. On functions are called for each
// entity: as it is after the update, or as it was before it was deleted.
//
// ResolveRows costs one SELECT of the ids and one for each entity, two on MySQL and MariaDB, which
// do not say which rows they changed; Config.MaxResolvedRows bounds them. Other mutations cost
// nothing more. Conditions that look at other rows, such as those on edges, are refused except on
// SQLite, because those rows are not locked. The option holds for all functions of a Hook that see
// the mutation.
//
// Interceptors see the SELECT of the ids: rows that they hide are not changed either. Conditions
// that a hook or a policy adds after this hook must not leave out any of the rows that were found;
// if they do, the mutation fails with core.ErrNoAggregateID. On MySQL and MariaDB the entities are
// compared instead, and an unchanged entity causes no event.
func ResolveRows() OnOption { return adapter.ResolveRows() }

// resolve executes an update or delete of many, and captures it entity by entity.
func (c *call) resolve(ctx context.Context, next ent.Mutator) (ent.Value, error) {
	t, err := c.hook.ob.txOfMutation(ctx, c.mutation)
	if err != nil {
		return nil, adapter.CausesEvents(c.op, c.mutation.Type(), err)
	}
	c.byKeys = true
	return c.run(ctx, t, func(context.Context) (ent.Value, error) { return c.resolved(ctx, next) })
}

// resolved executes the update or delete of the rows that it has found, and captures their events.
func (c *call) resolved(ctx context.Context, next ent.Mutator) (ent.Value, error) {
	inner := c.context(ctx)
	ids, err := c.bind(inner)
	if err != nil {
		return nil, err
	}
	before := make([]ent.Value, len(ids))
	// MySQL does not count rows that the update leaves unchanged.
	uncounted := c.op == core.OpUpdate && c.tx.driver.dialect == core.MySQL
	if c.op == core.OpDelete || uncounted {
		if err := c.load(inner, ids, before); err != nil {
			return nil, err
		}
	}
	v, err := next.Mutate(inner, c.mutation)
	if err != nil || v == 0 || !c.stored() {
		return v, err
	}
	entities := before
	if c.op != core.OpDelete {
		entities = make([]ent.Value, len(ids))
		if err := c.load(inner, ids, entities); err != nil {
			return nil, err
		}
	}
	found := len(ids)
	if uncounted && v != found {
		ids, entities = changedOf(ids, before, entities)
	}
	if v != len(ids) {
		return nil, c.unknown(fmt.Errorf("%d were found and locked before, and %v were changed", found, v))
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

// changedOf returns the entities that are different from before.
func changedOf(ids []reflect.Value, before, after []ent.Value) (changed []reflect.Value, entities []ent.Value) {
	for i, id := range ids {
		if !sameEntity(reflect.ValueOf(before[i]), reflect.ValueOf(after[i])) {
			changed, entities = append(changed, id), append(entities, after[i])
		}
	}
	return changed, entities
}

// sameEntity compares two generated structs of the same row: their exported fields, and their
// foreign keys, which are not exported.
func sameEntity(a, b reflect.Value) bool {
	if a.Type() != b.Type() || a.Kind() != reflect.Pointer || a.Elem().Kind() != reflect.Struct {
		return false
	}
	a, b = a.Elem(), b.Elem()
	for i := range a.NumField() {
		x, y := a.Field(i), b.Field(i)
		switch {
		case a.Type().Field(i).IsExported():
			if !reflect.DeepEqual(x.Interface(), y.Interface()) {
				return false
			}
		case x.Kind() != reflect.Pointer: // the client's configuration
		case x.IsNil() || y.IsNil():
			if x.IsNil() != y.IsNil() {
				return false
			}
		case x.Elem().Comparable() && !x.Elem().Equal(y.Elem()):
			return false
		}
	}
	return true
}

// lock is in the context of the SELECT that finds the ids. It reads the name of the id's column
// from the text of that SELECT.
type lock struct {
	call   *call
	column string
}

type lockKey struct{}

// bind finds and locks the entities of the mutation, and restricts the mutation to them.
func (c *call) bind(ctx context.Context) ([]reflect.Value, error) {
	method := reflect.ValueOf(c.mutation).MethodByName("IDs")
	bindable, ok := c.mutation.(interface {
		WhereP(conditions ...func(*entsql.Selector))
	})
	if !ok || !method.IsValid() || method.Type().NumIn() != 1 || method.Type().NumOut() != 2 {
		return nil, fmt.Errorf("%w: %s of %s does not say which rows it changes: the type has no ids",
			core.ErrNoAggregateID, c.op, c.mutation.Type())
	}
	l := &lock{call: c}
	ctx = context.WithValue(privacy.DecisionContext(ctx, privacy.Allow), lockKey{}, l)
	out := method.Call([]reflect.Value{reflect.ValueOf(ctx)})
	if err, _ := reflect.TypeAssert[error](out[1]); err != nil {
		return nil, adapter.Errorf("outbox: find the ids of %s of %s: %w", c.op, c.mutation.Type(), err)
	}
	ids := make([]reflect.Value, out[0].Len())
	values := make([]any, len(ids))
	for i := range ids {
		ids[i] = out[0].Index(i)
		values[i] = ids[i].Interface()
	}
	if limit := c.hook.ob.own.MaxRows(); len(ids) > limit {
		return nil, c.hook.ob.own.TooManyRows(c.op, c.mutation.Type())
	}
	if l.column == "" {
		return nil, fmt.Errorf("%w: the ids of %s of %s were not read in its transaction", core.ErrNoAggregateID,
			c.op, c.mutation.Type())
	}
	bindable.WhereP(func(s *entsql.Selector) { s.Where(entsql.In(s.C(l.column), values...)) })
	return ids, nil
}

func (c *call) load(ctx context.Context, ids []reflect.Value, into []ent.Value) error {
	for i, id := range ids {
		entity, ok, err := entityOf(ctx, c.mutation, id)
		if err == nil && !ok {
			err = fmt.Errorf("%T has no client that reads entities", c.mutation)
		}
		if err != nil {
			return adapter.Errorf("%w: read %s %s, which is to be reported: %w",
				core.ErrNoAggregateID, c.mutation.Type(), idText(id.Interface()), err)
		}
		into[i] = entity
	}
	return nil
}

// locking makes the SELECT that finds ids lock its rows: SELECT "orders"."id" FROM "orders" WHERE
// ...
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
		// A transaction that has read cannot always begin to write. This statement takes the lock
		// of the only writer, and changes nothing.
		table, _, _ := strings.Cut(rest, " ")
		if err := t.Exec(context.WithoutCancel(ctx), "DELETE FROM "+table+" WHERE 1 = 0", []any{}, nil); err != nil {
			return "", fmt.Errorf("lock %s: %w", table, err)
		}
		return fmt.Sprintf("%s LIMIT %d", query, l.call.hook.ob.own.MaxRows()+1), nil
	}
	if strings.Contains(rest, "SELECT ") {
		return "", fmt.Errorf("%w: the condition of %s of %s looks at other rows, which are not locked: change "+
			"entities one by one",
			core.ErrNoAggregateID, l.call.op, m.Type())
	}
	return fmt.Sprintf("%s LIMIT %d FOR UPDATE", query, l.call.hook.ob.own.MaxRows()+1), nil
}
