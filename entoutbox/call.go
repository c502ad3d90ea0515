package entoutbox

import (
	"bytes"
	"context"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"time"

	"entgo.io/ent"

	"github.com/ormoutbox/ormoutbox/core"
)

// call is one execution of a mutation. It is in the context of the statements that the mutation
// causes.
type call struct {
	mutation ent.Mutation
	op       core.Op
	of       identity
	driver   *driver
	within   *call   // the call in whose context this one was made, nil for none
	by       []*hook // hooks of outboxes around the mutation, the outermost first

	// For calls with mappers, guarded by driver.mu.
	open    bool
	root    root
	wasDone bool // the mutation was executed before, by an earlier Save of its builder
	seen    bool // a statement of the mutation was sent
}

// root reports whether calls belong to one bulk. The context alone does not: Ent gives each hook
// the context of the bulk, and bulks can run at the same time with one context.
type root struct {
	within    *call
	done      <-chan struct{}
	goroutine string
}

type callKey struct{}

func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
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

// is reports whether the mutation has the statement's type.
func (c *call) is(s *statement) bool {
	return c.of == s.client.of && c.mutation.Type() == s.entity.name
}

// mappers returns an outbox's mappers that take the mutation.
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

// enter notes a hook of a call. The first one with mappers opens the call.
func (d *driver) enter(ctx context.Context, c *call, h *hook) (opened bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	c.by = append(c.by, h)
	if c.open || len(c.mappers(h.ob)) == 0 {
		return false
	}
	c.open, c.wasDone = true, doneOf(c.mutation)
	if c.op == core.OpCreate {
		c.root = root{c.within, ctx.Done(), goroutine()}
	}
	d.calls = append(d.calls, c)
	return true
}

// leave removes a call. It reports whether its mutation was executed without a statement that has
// its context.
func (d *driver) leave(c *call) (lost bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, o := range slices.Backward(d.calls) { // the last one, as a rule
		if o == c {
			d.calls = slices.Delete(d.calls, i, i+1)
			break
		}
	}
	m := c.mutation
	changes := c.op != core.OpUpdate || len(m.Fields())+len(m.AddedFields())+len(m.ClearedFields()) > 0
	return changes && !c.seen && !c.wasDone && opOf(m) == c.op && doneOf(m)
}

// bulk returns the calls whose entities a statement stores, or changes. Ent passes the entities of
// a CreateBulk through the hooks one within the other, and executes the INSERT in the context of the
// last one.
func (d *driver) bulk(s *statement) (calls []*call) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, o := range slices.Backward(d.calls) {
		if len(calls) < s.Rows && (o == s.call || len(calls) > 0 && !o.seen && o.op == core.OpCreate &&
			o.root == s.call.root && o.is(s) && slices.Equal(o.by, s.call.by)) {
			o.seen = true
			calls = append(calls, o)
		}
	}
	slices.Reverse(calls)
	return calls
}

// goroutine names the goroutine.
func goroutine() string {
	var b [64]byte
	text := b[:runtime.Stack(b[:], false)] // goroutine 7 [running]:
	id, _, _ := bytes.Cut(bytes.TrimPrefix(text, []byte("goroutine ")), []byte(" "))
	return string(id)
}

// mutationOf returns the mutation of a row.
func (s *statement) mutationOf(op core.Op, row reflect.Value) (ent.Mutation, error) {
	c := s.call
	if s.Rows > 1 {
		c = s.callOf(row)
	}
	if c == nil {
		return nil, fmt.Errorf("%w: %s of %s stored several entities, and it is not known which mutation stored "+
			"which: use On, which needs no mutation", core.ErrNoAggregateID, op, s.entity.name)
	}
	return c.mutation, nil
}

// callOf returns the call of a bulk that stored a row, nil if that is not known. If the database
// does not show it, it is the call whose mutation has set the id of the row, or else the only one
// that has set all its values. If the database has changed the values, no call is found.
func (s *statement) callOf(row reflect.Value) (found *call) {
	if len(s.of) != s.Rows { // the hook has seen only some of the bulk
		return nil
	}
	if n := s.capture.ModelOf(row); n >= 0 {
		return s.of[n]
	}
	likely := 0
	for _, c := range s.of {
		if id := idOf(c.mutation); id.IsValid() && s.entity.id != nil {
			if reflect.DeepEqual(id.Interface(), row.Elem().FieldByIndex(s.entity.id).Interface()) {
				found, likely = c, 1 // the last one, if the statement has it twice
			}
		} else if hasValues(row.Elem(), c.mutation) {
			found = c
			likely++
		}
	}
	if likely != 1 {
		return nil
	}
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
