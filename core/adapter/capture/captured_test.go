package capture

import (
	"context"
	"reflect"
	"slices"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/adapter"
)

type order struct {
	ID int
	core.Recorder
}

func (*order) AggregateType() string { return "order" }

func TestCapturedMaps(t *testing.T) {
	t.Parallel()
	var c captured
	err := c.Map(t.Context(), func(_ context.Context, op core.Op, model any) ([]core.Event, error) {
		return []core.Event{
			{Type: op.String(), Data: model.(*order).ID}, {Type: "own", AggregateID: "own", AggregateType: "own"},
		}, nil
	}, core.OpUpdate, reflect.ValueOf(&order{ID: 7}), "7")
	if err != nil {
		t.Fatal(err)
	}
	want := []core.Event{
		{Type: "update", Data: 7, AggregateID: "7", AggregateType: "order"},
		{Type: "own", AggregateID: "own", AggregateType: "own"},
	}
	if got := c.Events(); !reflect.DeepEqual(got, want) {
		t.Errorf("events %+v, want %+v", got, want)
	}
}

func TestCapturedConcludes(t *testing.T) {
	t.Parallel()
	types := func(o *order) (types []string) {
		for _, e := range o.Recorded() {
			types = append(types, e.Type)
		}
		return types
	}
	for outcome, left := range map[core.Outcome][]string{
		core.Committed: nil, core.RolledBack: {"placed"},
		core.Unknown: {"placed"},
	} {
		o := &order{ID: 7}
		o.Record(core.Event{Type: "placed"})
		var c captured
		r, pending, err := adapter.Pending(reflect.ValueOf(o))
		if err != nil || !pending {
			t.Fatalf("pending %t, %v", pending, err)
		}
		events, err := c.Take(r)
		if err != nil {
			t.Fatal(err)
		}
		if named(events) {
			t.Error("an event without an AggregateID counts as named")
		}
		c.Add(events, reflect.ValueOf(o), "7")
		if e := c.Events()[0]; e.AggregateID != "7" || e.AggregateType != "order" || !named(c.Events()) {
			t.Errorf("event %+v", e)
		}
		if again, err := c.Take(r); len(again) > 0 || err != nil {
			t.Errorf("taken twice: %v, %v", again, err)
		}
		c.Conclude(outcome)
		if got := types(o); !slices.Equal(got, left) {
			t.Errorf("after %s %q are recorded, want %q", outcome, got, left)
		}
	}
}
