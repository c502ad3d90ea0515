package adapter

import (
	"cmp"
	"context"
	"reflect"
	"slices"

	"github.com/ormoutbox/ormoutbox/core"
)

// Captured collects the events of one statement. The zero value is ready for use by one goroutine.
type Captured struct {
	events   []core.Event
	conclude []func(core.Outcome)
}

// Map adds the events that an On function derives from a model. key is the key of the model's row.
func (c *Captured) Map(ctx context.Context, fn Mapper, op core.Op, model reflect.Value, key string) error {
	events, err := fn(ctx, op, model.Interface())
	if err == nil {
		c.Add(events, model, key)
	}
	return err
}

// Take returns the events that were recorded on r. Pass them to Add. Only Conclude(core.Committed)
// removes them from r; after Conclude(core.RolledBack) they are still recorded.
func (c *Captured) Take(r *core.Recorder) ([]core.Event, error) {
	events, conclude, err := r.HandOver()
	if err != nil || len(events) == 0 {
		return nil, err
	}
	c.conclude = append(c.conclude, conclude)
	return events, nil
}

// Add adds events of a model. An empty AggregateID becomes key. An empty AggregateType becomes the
// result of the model's method AggregateType.
func (c *Captured) Add(events []core.Event, model reflect.Value, key string) {
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
func (c *Captured) Events() []core.Event { return c.events }

// Conclude reports the outcome of the transaction, which must be tracked, to the recorders, or
// RolledBack if the events were not written.
func (c *Captured) Conclude(o core.Outcome) {
	for _, conclude := range c.conclude {
		conclude(o)
	}
}

// Named reports whether each event names its aggregate. Such events do not need the key of a row.
func Named(events []core.Event) bool {
	return !slices.ContainsFunc(events, func(e core.Event) bool { return e.AggregateID == "" })
}
