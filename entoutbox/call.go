package entoutbox

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"time"

	"entgo.io/ent"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/adapter"
)

// call is one mutation that passes through one hook. It is in the context of the statements that
// the mutation causes.
type call struct {
	hook     *hook
	client   *client
	mutation ent.Mutation
	within   *call // the call in whose context this one was made, nil for none
	op       core.Op
	mappers  []Mapper

	// For calls with mappers. The rest is guarded by driver.mu.
	root      root
	goroutine string
	wasDone   bool // the mutation was executed before, by an earlier Save of its builder
	seen      bool // a statement of the mutation was sent
}

// root tells whether calls may belong to one bulk, whose hooks all get the context of the bulk.
type root struct {
	done   <-chan struct{}
	within *call
}

type callKey struct{}

func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

func newCall(ctx context.Context, h *hook, cl *client, m ent.Mutation) *call {
	c := &call{hook: h, client: cl, mutation: m, within: callOf(ctx), op: opOf(m)}
	c.root = root{ctx.Done(), c.within}
	if c.within != nil && c.within.mutation == m {
		c.root, c.op = c.within.root, c.within.op
	}
	for _, mapper := range h.mappers {
		if mapper.takes(m) {
			c.mappers = append(c.mappers, mapper)
		}
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

// is reports whether the mutation is one of a type.
func (c *call) is(cl *client, e *entity) bool {
	return c.client.of == cl.of && c.mutation.Type() == e.name
}

// repeats reports whether c, or a call around it, is the same mutation in the same hook.
func (c *call) repeats(h *hook, m ent.Mutation) bool {
	for ; c != nil; c = c.within {
		if c.hook == h && c.mutation == m {
			return true
		}
	}
	return false
}

// hooks returns the calls of the same mutation, one for each hook around it, the outermost first.
func (c *call) hooks() (all []*call) {
	for w := c; w != nil && w.mutation == c.mutation; w = w.within {
		all = append(all, w)
	}
	slices.Reverse(all)
	return all
}

// open adds a call to the open ones of the driver.
func (d *driver) open(c *call) {
	c.goroutine = goroutine()
	c.wasDone = doneOf(c.mutation)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls = append(d.calls, c)
}

// close removes a call. It reports whether its mutation was executed without a statement that was
// taken for its own.
func (d *driver) close(c *call) (lost bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if i := slices.Index(d.calls, c); i >= 0 {
		d.calls = slices.Delete(d.calls, i, i+1)
	}
	changed := c.op == core.OpCreate || c.op == core.OpDelete
	return changed && !c.seen && !c.wasDone && opOf(c.mutation) == c.op && doneOf(c.mutation)
}

// lost returns the call of a statement that does not have its context, because a hook did not pass
// its context on.
func (d *driver) lost(s *statement) *call {
	d.mu.Lock()
	defer d.mu.Unlock()
	id := ""
	for _, c := range slices.Backward(d.calls) {
		insert := c.op == core.OpCreate
		if c.seen || !c.is(s.client, s.entity) || insert != (s.verb == "INSERT") {
			continue
		}
		if id = cmp.Or(id, goroutine()); c.goroutine == id {
			return c
		}
	}
	return nil
}

// bulk returns the calls whose entities a statement stores, or changes. Ent passes the entities of
// a CreateBulk through the hooks one within the other, each with the context of the bulk, and
// executes the INSERT in the context of the last one.
func (d *driver) bulk(c *call, s *statement) []*call {
	rows := 1
	if s.verb == "INSERT" {
		rows = s.write.rows()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	c.seen = true
	calls := []*call{c}
	at := slices.Index(d.calls, c)
	for _, o := range slices.Backward(d.calls[:max(at, 0)]) {
		if len(calls) == rows {
			break
		}
		if o.hook == c.hook && o.op == core.OpCreate && !o.seen && o.root == c.root && o.mutation != c.mutation &&
			o.goroutine == c.goroutine && o.is(s.client, s.entity) {
			o.seen = true
			calls = append(calls, o)
		}
	}
	slices.Reverse(calls)
	return calls
}

// mutationMapper makes an On function of one of OnMutation.
func (s *statement) mutationMapper(m Mapper, of []*call) adapter.Mapper {
	var known map[any]ent.Mutation // by entity
	return func(ctx context.Context, _ core.Op, model any) ([]core.Event, error) {
		if known == nil {
			known = s.mutations(of)
		}
		mutation := known[model]
		if mutation == nil {
			return nil, fmt.Errorf("%w: %s of %s stored several entities, and nobody can tell which mutation stored "+
				"which: use On, which needs no mutation", core.ErrNoAggregateID, s.op, s.entity.name)
		}
		return m.fn(ctx, mutation, model)
	}
}

// mutations finds the mutation of each row.
func (s *statement) mutations(of []*call) map[any]ent.Mutation {
	known := map[any]ent.Mutation{}
	rows := 1
	if s.verb == "INSERT" {
		rows = s.write.rows()
	}
	switch {
	case len(of) != rows: // the hook has seen only some of a bulk
	case rows == 1:
		for _, row := range s.rows {
			known[row.Interface()] = of[0].mutation
		}
	default:
		inOrder := s.inOrder(of)
		for i, row := range s.rows {
			switch n := s.capture.ModelOf(row); {
			case n >= 0:
				known[row.Interface()] = of[n].mutation
			case inOrder:
				known[row.Interface()] = of[i].mutation
			default:
				known[row.Interface()] = s.mutationLike(of, row)
			}
		}
	}
	return known
}

// inOrder reports whether the rows have the order of the mutations, as those of RETURNING have.
func (s *statement) inOrder(of []*call) bool {
	return len(s.rows) == len(of) && s.returned
}

// mutationLike returns the mutation that has set the id of a row, or else all its values, nil if
// several have. Values that the database has changed find none.
func (s *statement) mutationLike(of []*call, row reflect.Value) (found ent.Mutation) {
	row = row.Elem()
	likely := 0
	for _, c := range of {
		if id, own := rawID(c.mutation); own && s.entity.id != nil {
			if reflect.DeepEqual(id.Interface(), row.FieldByIndex(s.entity.id).Interface()) {
				found, likely = c.mutation, 1 // the last one, if the statement has it twice
			}
		} else if hasValues(row, c.mutation) {
			found = c.mutation
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

// goroutine names the goroutine. Bulks can run at the same time with equal contexts, such as
// context.Background().
func goroutine() string {
	var b [64]byte
	text := b[:runtime.Stack(b[:], false)] // goroutine 7 [running]:
	text = bytes.TrimPrefix(text, []byte("goroutine "))
	id, _, _ := bytes.Cut(text, []byte(" "))
	return string(id)
}
