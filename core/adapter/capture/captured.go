package capture

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/adapter"
)

// captured collects the events of one statement. The zero value is ready for use by one goroutine.
type captured struct {
	events   []core.Event
	conclude []func(core.Outcome)
}

// Map adds the events that an On function derives from a model. key is the key of the model's row.
func (c *captured) Map(ctx context.Context, fn adapter.Mapper, op core.Op, model reflect.Value, key string) error {
	events, err := fn(ctx, op, model.Interface())
	if err == nil {
		c.Add(events, model, key)
	}
	return err
}

// Take returns the events that were recorded on r. Pass them to Add. Only Conclude(core.Committed)
// removes them from r; after Conclude(core.RolledBack) they are still recorded.
func (c *captured) Take(r *core.Recorder) ([]core.Event, error) {
	events, conclude, err := r.HandOver()
	if err != nil || len(events) == 0 {
		return nil, err
	}
	c.conclude = append(c.conclude, conclude)
	return events, nil
}

// Add adds events of a model. An empty AggregateID becomes key. An empty AggregateType becomes the
// result of the model's method AggregateType.
func (c *captured) Add(events []core.Event, model reflect.Value, key string) {
	for _, e := range events {
		e.AggregateID = cmp.Or(e.AggregateID, key)
		if e.AggregateType == "" {
			if t, ok := reflect.TypeAssert[interface{ AggregateType() string }](model); ok {
				e.AggregateType = t.AggregateType()
			}
		}
		c.events = append(c.events, e)
	}
}

// Events returns the added events in their order.
func (c *captured) Events() []core.Event { return c.events }

// Conclude reports the outcome of the transaction, which must be tracked, to the recorders, or
// RolledBack if the events were not written.
func (c *captured) Conclude(o core.Outcome) {
	for _, conclude := range c.conclude {
		conclude(o)
	}
}

// named reports whether each event names its aggregate. Such events do not need the key of a row.
func named(events []core.Event) bool {
	return !slices.ContainsFunc(events, func(e core.Event) bool { return e.AggregateID == "" })
}

// taken are the recorded events of one model.
type taken struct {
	model  reflect.Value
	row    row
	events []core.Event
}

// take takes the events of each model whose row was changed. They are recorded again unless the
// transaction commits.
func (c *Capture) take() {
	c.captured, c.taken = &captured{}, nil
	c.takeErr = c.takeAll()
	if len(c.taken) > 0 {
		c.refuse(errPanicked) // until they are published
		c.tx.OnOutcome(c.Conclude)
	}
}

func (c *Capture) takeAll() error {
	bit := -1
	for i := range c.st.Models {
		m := &c.st.Models[i]
		if m.Recorder == nil {
			continue
		}
		bit++
		r, changed, known := c.rowOf(i, bit)
		if known && !changed {
			continue
		}
		events, err := c.Take(m.Recorder)
		if err != nil {
			return err
		}
		if len(events) == 0 {
			continue
		}
		c.tx.OnRollback(m.Recorder, core.UndoRecorded(m.Recorder)) // it may have had no events before
		c.taken = append(c.taken, taken{m.Value, r, events})
		if !known && !named(events) {
			return fmt.Errorf("%w: event %q was recorded on a model, and %s of %s changed %d rows, and "+
				"which of them is the model's is not known: set AggregateID", core.ErrNoAggregateID, events[0].Type,
				c.st.Op, c.st.Of, len(c.told))
		}
	}
	return nil
}

// putBack restores recorders that the ORM has overwritten with the rows of its RETURNING. It
// returns an error if a model went with its events, because its row was not among them.
func (c *Capture) putBack() (err error) {
	for i := range c.st.Models {
		m := &c.st.Models[i]
		if m.Recorder == nil || *m.Recorder == c.saved[i] {
			continue
		}
		*m.Recorder = c.saved[i]
		for _, e := range m.Recorder.Recorded() {
			if !slices.ContainsFunc(c.taken, func(t taken) bool { return t.has(e) }) {
				err = fmt.Errorf("%w: event %q was recorded on a model that RETURNING has replaced by another, and "+
					"%s of %s did not change its row", core.ErrNoAggregateID, e.Type, c.st.Op, c.st.Of)
			}
		}
	}
	return err
}

func (t taken) has(e core.Event) bool {
	return slices.ContainsFunc(t.events, func(own core.Event) bool { return own.ID == e.ID })
}

// rowOf finds the row of a model. known is false if it is not certain which of the changed rows it
// is.
func (c *Capture) rowOf(model, bit int) (r row, changed, known bool) {
	m := &c.st.Models[model]
	insert := c.st.Op == core.OpCreate || c.st.Op == core.OpUpsert
	given := c.given()
	// RETURNING follows the order of VALUES, and ORMs rely on it.
	if insert && !c.unordered && len(c.rows) == given && (c.st.Op == core.OpCreate || len(m.Keys) == 0) {
		return c.rows[model], true, true
	}
	if len(m.Keys) > 0 {
		for _, r := range c.told {
			if bit < len(r.of) && r.of[bit] == '1' {
				return r, true, true
			}
		}
		// A single model stands for the rows of its statement. If the statement changed others, the
		// rows of the events are not known.
		return row{}, false, given > 1
	}
	if len(c.told) == 1 && (!insert || given == 1) {
		return c.told[0], true, true
	}
	return row{}, false, false
}

// given is the number of models that stand for rows.
func (c *Capture) given() int {
	n := 0
	for i := range c.st.Models {
		if !c.st.Models[i].Apart {
			n++
		}
	}
	return n
}

// ModelOf returns the number of the model of a row that Scan has made, -1 if that is not known:
// RETURNING has the order of the models, and elsewhere the database is asked for models with a
// Recorder. If a statement had the row several times, it is the last one.
func (c *Capture) ModelOf(of reflect.Value) int {
	if !c.unordered && len(c.rows) == c.given() {
		return slices.IndexFunc(c.rows, func(r row) bool { return r.model.Pointer() == of.Pointer() })
	}
	for _, r := range c.told {
		if r.model.Pointer() != of.Pointer() {
			continue
		}
		bit := strings.LastIndexByte(r.of, '1')
		for i := range c.st.Models {
			if c.st.Models[i].Recorder == nil {
				continue
			}
			if bit == 0 {
				return i
			}
			bit--
		}
	}
	return -1
}
