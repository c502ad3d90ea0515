package entoutbox

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"entgo.io/ent"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/adapter"
)

// call is one mutation that passes through one hook. It is in the context of the statements that
// the mutation causes, and they note in it what they changed.
type call struct {
	hook     *hook
	mutation ent.Mutation
	within   *call // the call in whose context this one was made, nil for none
	op       core.Op
	id       string // id of the entity, "" when it is not known before the mutation
	hasID    bool   // the type of the mutation has an id
	mappers  []Mapper
	wasDone  bool // the mutation was executed before, by an earlier Save of its builder

	tx     *tx  // nil for a call that captures nothing
	byKeys bool // resolve captures it

	// The rest is guarded by tx.mu.
	seen  bool      // a statement was executed in the context of the call
	did   []*effect // changes made by its statements
	group *group    // set for a create, from its INSERT on
}

type callKey struct{}

func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

func newCall(ctx context.Context, h *hook, m ent.Mutation) *call {
	within := callOf(ctx)
	return &call{hook: h, mutation: m, within: within, op: opOf(m), mappers: h.mappersFor(m, within)}
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

// context returns ctx with c, for the statements of the mutation.
func (c *call) context(ctx context.Context) context.Context {
	return context.WithValue(ctx, callKey{}, c)
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

// identify reports whether the changed entity is known, or will be after a create.
func (c *call) identify() bool {
	c.id, c.hasID = idOf(c.mutation)
	return c.op == core.OpCreate || c.id != ""
}

// begin adds the call to the open calls of its transaction.
func (c *call) begin(t *tx) {
	c.wasDone, _ = doneOf(c.mutation)
	t.mu.Lock()
	defer t.mu.Unlock()
	c.tx = t
	t.open = append(t.open, c)
}

// end removes the call from the open calls. If it is the last call whose entity one INSERT stored,
// it publishes the events of all of them. If the mutation or its capture failed after a row may
// have been changed, end makes the transaction fail, because otherwise the row could be committed
// without its event.
func (c *call) end(ctx context.Context, err error) error {
	failed := err != nil && c.stored()
	if failed {
		c.tx.followed.RefuseCommit(err)
	}
	published := false
	defer func() {
		if !published { // a payload panicked
			c.tx.followed.RefuseCommit(adapter.ErrPanicked)
		}
	}()
	perr := c.publish(ctx, c.leave(failed))
	if published = true; perr != nil {
		c.tx.followed.RefuseCommit(perr)
	}
	if err != nil {
		return err // not wrapped, because callers look at its type
	}
	return perr
}

func (c *call) leave(failed bool) []core.Event {
	t := c.tx
	t.mu.Lock()
	defer t.mu.Unlock()
	if failed && c.group != nil {
		c.group.failed = true
	}
	if i := slices.Index(t.open, c); i >= 0 {
		t.open = slices.Delete(t.open, i, i+1)
	}
	return c.group.end(c)
}

// stored reports whether the mutation may have changed a row.
func (c *call) stored() bool {
	executed := c.executed()
	c.tx.mu.Lock()
	defer c.tx.mu.Unlock()
	if c.op == core.OpCreate || c.op == core.OpUpsert {
		return executed && (c.group == nil || !c.group.insert.undone.Load())
	}
	return executed && c.changed() != 0
}

// executed reports whether the mutation itself was executed. A hook may have answered in its place.
func (c *call) executed() bool {
	if done, told := doneOf(c.mutation); told && !c.wasDone {
		return done
	}
	c.tx.mu.Lock()
	defer c.tx.mu.Unlock()
	return c.seen || c.group != nil
}

// capture asks the mappers for the events of a mutation that returned v, and records them.
func (c *call) capture(ctx context.Context, v ent.Value) error {
	if c.byKeys || !c.executed() {
		return nil // a hook acted in its place, and its mutations have events of their own
	}
	changes, err := c.changes()
	if err != nil || !changes {
		return err
	}
	if n, ok := v.(int); ok && n == 0 && c.op != core.OpCreate && c.op != core.OpUpsert {
		return nil
	}
	if c.op == core.OpUpsert {
		if v, err = c.reload(ctx, v); err != nil {
			return err
		}
	}
	events, err := c.events(ctx, v)
	if err != nil || len(events) == 0 {
		return err
	}
	if c.keep(events) {
		return nil
	}
	return c.publish(ctx, events)
}

func (c *call) publish(ctx context.Context, events []core.Event) error {
	if len(events) == 0 {
		return nil
	}
	return c.hook.ob.own.Publish(ctx, c.tx.core, events...)
}

var errContextLost = errors.New("outbox: a hook did not pass its context on")

// changes reports whether the database said that the row of the mutation was changed. It also
// decides whether a create was an upsert.
func (c *call) changes() (bool, error) {
	c.tx.mu.Lock()
	defer c.tx.mu.Unlock()
	if c.op != core.OpCreate {
		if !c.seen {
			return false, c.unknown(errContextLost)
		}
		return c.changed() != 0, nil
	}
	if c.group == nil {
		return false, c.unknown(errContextLost)
	}
	return c.group.insert.changes(c)
}

func (c *call) unknown(why error) error {
	return adapter.Errorf("%w: %s of %s was executed, and nobody can tell which rows it changed: %w",
		core.ErrNoAggregateID, c.op, c.mutation.Type(), why)
}

func (c *call) events(ctx context.Context, v ent.Value) ([]core.Event, error) {
	id := c.aggregateID()
	ctx = core.ContextWithTx(context.WithValue(c.context(ctx), opKey{}, c.op), c.tx.core)
	var all []core.Event
	for _, mapper := range c.mappers {
		events, err := mapper.fn(ctx, c.mutation, v)
		if err != nil {
			return nil, err
		}
		for _, e := range events {
			if e.AggregateID == "" {
				if e.AggregateID = id; id == "" && c.hasID {
					return nil, fmt.Errorf("%w: upserts of %s in bulk do not tell the ids on %s: set AggregateID of "+
						"event %q",
						core.ErrNoAggregateID, c.mutation.Type(), c.tx.driver.Dialect(), e.Type)
				}
			}
			all = append(all, e)
		}
	}
	return all, nil
}

// aggregateID returns the id of the entity, "" when it has none or its id is not known.
func (c *call) aggregateID() string {
	if c.guessedID() {
		return c.id
	}
	if c.op == core.OpCreate || c.op == core.OpUpsert {
		if id, _ := idOf(c.mutation); id != "" {
			return id
		}
	}
	return c.id
}

// guessedID reports whether the id in the mutation is a guess. In an upsert of several rows on
// MySQL, Ent counts up from the first id, which is wrong for rows that existed already.
func (c *call) guessedID() bool {
	return c.op == core.OpUpsert && c.id == "" && c.many() && c.tx.driver.dialect == core.MySQL
}

func (c *call) many() bool {
	c.tx.mu.Lock()
	defer c.tx.mu.Unlock()
	return c.group != nil && c.group.insert.rows > 1
}

// reload reads the entity of an upsert. Ent returns the given values, but an existing row may have
// kept or computed other ones. The read also proves that the row has this id.
func (c *call) reload(ctx context.Context, v ent.Value) (ent.Value, error) {
	if c.guessedID() {
		return v, nil
	}
	id, ok := rawID(c.mutation)
	if !ok {
		return v, nil
	}
	stored, ok, err := entityOf(c.context(ctx), c.mutation, id)
	if err != nil {
		return nil, adapter.Errorf("%w: the upsert of %s %s cannot be read back: another row may have been changed in "+
			"its place, or an interceptor hides it: %w",
			core.ErrNoAggregateID, c.mutation.Type(), idText(id.Interface()), err)
	}
	if !ok {
		return v, nil
	}
	return stored, nil
}
