package entoutbox

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"entgo.io/ent"
	"entgo.io/ent/dialect"

	"github.com/ormoutbox/ormoutbox/core"
)

// call is one execution of a mutation. It is in the context of the statements that the mutation
// causes.
type call struct {
	mutation ent.Mutation
	op       core.Op
	of       identity
	driver   *driver
	below    dialect.Driver // that of the mutation, above driver
	by       []*hook        // those of outboxes around the mutation, the outermost first
	root     root

	// For calls with mappers, guarded by driver.mu.
	open    bool
	wasDone bool // the mutation was executed before, by an earlier Save of its builder
	seen    bool // a statement of the mutation was sent
}

// root tells whether calls may belong to one bulk, whose hooks all get the context of the bulk.
type root struct {
	tx     uintptr // a transaction has a driver of its own
	within *call   // the call in whose context this one was made, nil for none
	done   <-chan struct{}
}

type callKey struct{}

func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

func newCall(ctx context.Context, m ent.Mutation) *call {
	c := &call{mutation: m, op: opOf(m), root: root{within: callOf(ctx), done: ctx.Done()}}
	c.below, _ = driverOfCode(reflect.ValueOf(m))
	if drv := reflect.ValueOf(c.below); drv.Kind() == reflect.Pointer {
		c.root.tx = drv.Pointer()
	}
	return c
}

func opOf(m ent.Mutation) core.Op {
	switch op := m.Op(); {
	case op.Is(ent.OpCreate):
		return core.OpCreate
	case op.Is(ent.OpDelete | ent.OpDeleteOne):
		return core.OpDelete
	default:
		return core.OpUpdate
	}
}

// is reports whether the mutation is one of the statement's type.
func (c *call) is(s *statement) bool {
	return c.of == s.client.of && c.mutation.Type() == s.entity.name
}

// mappers returns those of an outbox that take the mutation.
func (c *call) mappers(ob *Outbox) (all []Mapper) {
	if c == nil {
		return nil
	}
	for _, h := range c.by {
		for _, m := range h.mappers {
			if h.ob == ob && m.takes(c.mutation) {
				all = append(all, m)
			}
		}
	}
	return all
}

// enter adds a call to the open ones of the driver.
func (d *driver) enter(c *call) {
	d.mu.Lock()
	defer d.mu.Unlock()
	c.open, c.wasDone = true, doneOf(c.mutation)
	d.calls = append(d.calls, c)
}

// leave removes a call. It reports whether its mutation was executed without a statement that has
// its context.
func (d *driver) leave(c *call) (lost bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls = slices.DeleteFunc(d.calls, func(o *call) bool { return o == c })
	m := c.mutation
	changes := c.op != core.OpUpdate || len(m.Fields())+len(m.AddedFields())+len(m.ClearedFields()) > 0
	return changes && !c.seen && !c.wasDone && opOf(m) == c.op && doneOf(m)
}

// bulk returns the calls whose entities a statement stores, or changes. Ent passes the entities of
// a CreateBulk through the hooks one within the other, each with the context of the bulk, and
// executes the INSERT in the context of the last one. There are more calls than rows if another
// bulk that cannot be told apart runs at the same time.
func (d *driver) bulk(s *statement) (calls []*call) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s.call.seen = true
	if s.Rows == 1 {
		return []*call{s.call}
	}
	for _, o := range d.calls {
		if o == s.call || !o.seen && o.op == core.OpCreate && o.root == s.call.root && o.is(s) &&
			slices.Equal(o.by, s.call.by) {
			calls = append(calls, o)
		}
	}
	if len(calls) == s.Rows {
		for _, o := range calls {
			o.seen = true
		}
	}
	return calls
}

// mutationOf returns the mutation of a row.
func (s *statement) mutationOf(op core.Op, model any) (ent.Mutation, error) {
	if s.known == nil {
		s.known = s.mutations()
	}
	if m := s.known[model]; m != nil {
		return m, nil
	}
	return nil, fmt.Errorf("%w: %s of %s stored several entities, and nobody can tell which mutation stored "+
		"which: use On, which needs no mutation", core.ErrNoAggregateID, op, s.entity.name)
}

// mutations finds the mutation of each row.
func (s *statement) mutations() map[any]ent.Mutation {
	known := map[any]ent.Mutation{}
	if len(s.of) < s.Rows { // the hook has seen only some of a bulk
		return known
	}
	for _, row := range s.rows {
		c := s.call
		if s.Rows > 1 {
			if n := s.capture.ModelOf(row); n >= 0 && len(s.of) == s.Rows {
				c = s.of[n]
			} else {
				c = s.callLike(row.Elem())
			}
		}
		if c != nil {
			known[row.Interface()] = c.mutation
		}
	}
	return known
}

// callLike returns the call whose mutation has set the id of a row, or else all its values, nil if
// several have. Values that the database has changed find none.
func (s *statement) callLike(row reflect.Value) (found *call) {
	likely := 0
	for _, c := range s.of {
		if id := idOf(c.mutation); id.IsValid() && s.entity.id != nil {
			if reflect.DeepEqual(id.Interface(), row.FieldByIndex(s.entity.id).Interface()) {
				found, likely = c, 1 // the last one, if the statement has it twice
			}
		} else if hasValues(row, c.mutation) {
			found = c
			likely++
		}
	}
	if likely != 1 {
		return nil
	}
	s.call.driver.mu.Lock()
	defer s.call.driver.mu.Unlock()
	found.seen = true
	return found
}

// hasValues reports whether an entity has the values that a mutation sets.
func hasValues(entity reflect.Value, m ent.Mutation) bool {
	for _, name := range m.Fields() {
		bare := strings.ReplaceAll(name, "_", "")
		f := entity.FieldByNameFunc(func(n string) bool { return strings.EqualFold(n, bare) })
		set, _ := m.Field(name)
		if f.Kind() == reflect.Pointer && !f.IsNil() {
			f = f.Elem()
		}
		if _, clock := set.(time.Time); clock || !f.IsValid() || !f.CanInterface() {
			continue // the database rounds times
		}
		if !reflect.DeepEqual(f.Interface(), set) {
			return false
		}
	}
	return true
}
