package entoutbox

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"entgo.io/ent"

	"github.com/ormoutbox/ormoutbox/core"
)

// call is one mutation on its way through one hook. It travels in the context to the statements that the mutation causes.
type call struct {
	hook     *hook
	mutation ent.Mutation
	within   *call // the call in whose context this one was made, nil for none
	op       core.Op
	id       string // of the entity, "" when it is not known before the mutation
	hasID    bool   // the type of the mutation has one

	tx   *tx
	bulk *bulk // creates only
	slot int   // position in bulk

	inserted  bool // its INSERT has been seen; in a bulk only the last call sees one
	onCollide collision
}

// bulk is what the creates of one CreateBulk share. Its entities pass through the hook one within the other, so that the last one is done
// first; their events are recorded in the order of the builders, by the first one, when all are done. A single create is a bulk of one.
// It is guarded by the lock of the transaction.
type bulk struct {
	onCollide collision      // of the latest INSERT that was seen
	events    [][]core.Event // by slot
	done      bool
}

// collision is what an INSERT does with a row that is there already.
type collision uint8

const (
	collisionFails collision = iota
	collisionUpdates
	collisionSkips
)

type callKey struct{}

func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

func newCall(ctx context.Context, h *hook, m ent.Mutation) *call {
	return &call{hook: h, mutation: m, within: callOf(ctx), op: opOf(m)}
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

// context returns ctx for what the mutation does.
func (c *call) context(ctx context.Context) context.Context {
	return context.WithValue(ctx, callKey{}, c)
}

// repeats reports whether c or one around it is the same mutation in the same hook.
func (c *call) repeats(h *hook, m ent.Mutation) bool {
	for ; c != nil; c = c.within {
		if c.hook == h && c.mutation == m {
			return true
		}
	}
	return false
}

// cause is the call of another mutation that this one was made in, nil for none.
func (c *call) cause() *call {
	w := c.within
	for w != nil && w.mutation == c.mutation {
		w = w.within
	}
	return w
}

// identify reports whether it is known, or will be, which entity is changed.
func (c *call) identify() bool {
	c.id, c.hasID = idOf(c.mutation)
	return c.op == core.OpCreate || c.id != ""
}

// begin takes the place of the call among those of its transaction. A create within the latest create of the same type, and not caused
// by it, is the next one of a bulk: Ent calls them with the context of the whole.
func (c *call) begin(t *tx) {
	c.tx = t
	if c.op != core.OpCreate {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, o := range slices.Backward(t.open) {
		if o.hook != c.hook {
			continue
		}
		if o.mutation.Type() == c.mutation.Type() && o.cause() == c.cause() && !o.inserted {
			c.bulk, c.slot = o.bulk, len(o.bulk.events)
		}
		break
	}
	if c.bulk == nil {
		c.bulk = &bulk{}
	}
	c.bulk.events = append(c.bulk.events, nil)
	t.open = append(t.open, c)
}

// end gives the place up.
func (c *call) end() {
	c.tx.mu.Lock()
	defer c.tx.mu.Unlock()
	for i, o := range slices.Backward(c.tx.open) {
		if o == c {
			c.tx.open = slices.Delete(c.tx.open, i, i+1)
			return
		}
	}
}

// noteInsert is told every statement of generated code before it is executed. The first INSERT of a create is its own; edges and what
// hooks do come later or under calls of their own. An error refuses the statement.
func noteInsert(ctx context.Context, query string) error {
	c := callOf(ctx)
	if c == nil || !strings.HasPrefix(query, "INSERT") {
		return nil
	}
	mode := collisionFails
	switch {
	case strings.Contains(query, " DO NOTHING"):
		mode = collisionSkips
	case strings.Contains(query, " ON CONFLICT"), strings.Contains(query, " ON DUPLICATE KEY"):
		mode = collisionUpdates
	}
	for w := c; w != nil && w.mutation == c.mutation; w = w.within { // every hook around the mutation has a call
		if !w.note(mode) || mode != collisionSkips {
			continue
		}
		if _, many := w.collision(); many {
			if err := w.hook.ob.keyless(ctx, w.mutation, "in bulk with DoNothing does not say which rows were there already"); err != nil {
				return err
			}
		}
	}
	return nil
}

// note keeps what the call's own INSERT does. It reports false when that was seen before.
func (c *call) note(mode collision) bool {
	if c.bulk == nil {
		return false
	}
	c.tx.mu.Lock()
	defer c.tx.mu.Unlock()
	if c.inserted {
		return false
	}
	c.inserted, c.onCollide, c.bulk.onCollide = true, mode, mode
	return true
}

// collision returns what the INSERT does that stores the entity, and whether it stores others too.
func (c *call) collision() (mode collision, many bool) {
	if c.bulk == nil {
		return collisionFails, false
	}
	c.tx.mu.Lock()
	defer c.tx.mu.Unlock()
	if many = len(c.bulk.events) > 1; c.inserted {
		return c.onCollide, many
	}
	return c.bulk.onCollide, many
}

// capture asks the mappers for the events of a mutation that was executed, and records them.
func (c *call) capture(ctx context.Context, v ent.Value) error {
	if n, ok := v.(int); ok && n == 0 && c.op != core.OpCreate {
		return nil // nothing was changed
	}
	mode, many := c.collision()
	if mode != collisionFails {
		c.op = core.OpUpsert
	}
	var events []core.Event
	if mode != collisionSkips || !many { // else keyless has let it pass
		var err error
		if events, err = c.events(ctx, v, many); err != nil {
			return err
		}
	}
	if events = c.inOrder(events); len(events) == 0 {
		return nil
	}
	_, err := c.hook.ob.core.Publish(ctx, c.tx.core, events...)
	return err
}

func (c *call) events(ctx context.Context, v ent.Value, many bool) ([]core.Event, error) {
	id := c.aggregateID(many)
	ctx = core.ContextWithTx(context.WithValue(c.context(ctx), opKey{}, c.op), c.tx.core)
	var all []core.Event
	for _, mapper := range c.hook.mappers {
		if !mapper.takes(c.mutation) {
			continue
		}
		events, err := mapper.fn(ctx, c.mutation, v)
		if err != nil {
			return nil, err
		}
		for _, e := range events {
			if e.AggregateID == "" {
				if e.AggregateID = id; id == "" && c.hasID {
					return nil, fmt.Errorf("%w: upserts of %s in bulk do not tell the ids on %s: set AggregateID of event %q",
						ErrNoAggregateID, c.mutation.Type(), c.tx.driver.Dialect(), e.Type)
				}
			}
			all = append(all, e)
		}
	}
	return all, nil
}

// aggregateID returns the id of the entity, "" when it has none, or nobody knows it.
func (c *call) aggregateID(many bool) string {
	if c.op == core.OpUpsert && many && c.tx.driver.dialect == core.MySQL {
		return c.id // Ent counts up from the first: wrong for rows that were there already
	}
	if c.op == core.OpCreate || c.op == core.OpUpsert {
		if id, _ := idOf(c.mutation); id != "" {
			return id
		}
	}
	return c.id
}

// inOrder keeps the events of a bulk back until its first entity brings all of them.
func (c *call) inOrder(events []core.Event) []core.Event {
	b := c.bulk
	if b == nil {
		return events
	}
	c.tx.mu.Lock()
	defer c.tx.mu.Unlock()
	if b.done {
		return events
	}
	b.events[c.slot] = events
	if c.slot > 0 {
		return nil
	}
	b.done = true
	return slices.Concat(b.events...)
}
