package adapter_test

import (
	"context"
	"reflect"
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/adapter"
)

type order struct {
	ID int
	core.Recorder
}

func (*order) AggregateType() string { return "order" }

type invoice struct{ Events core.Recorder }

func TestMappers(t *testing.T) {
	t.Parallel()
	var m adapter.Mappers
	adapter.On(&m, func(op core.Op, o *order) []core.Event {
		return []core.Event{{Type: "first." + op.String(), Data: o.ID}}
	})
	adapter.OnContext(&m, func(context.Context, core.Op, *order) ([]core.Event, error) {
		return []core.Event{{Type: "second", AggregateID: "own", AggregateType: "own"}}, nil
	})
	fns, named := m.For(reflect.TypeFor[order](), "")
	if len(fns) != 2 || !named {
		t.Fatalf("%d functions, named: %t", len(fns), named)
	}
	if fns, named := m.For(reflect.TypeFor[invoice](), ""); fns != nil || named {
		t.Errorf("%d functions for another type", len(fns))
	}
	adapter.OnAll(&m, func(context.Context, core.Op, any) ([]core.Event, error) { return nil, nil }, &invoice{})
	if fns, _ := m.For(reflect.TypeFor[order](), ""); len(fns) != 3 {
		t.Errorf("%d functions after OnAll", len(fns))
	}
	if fns, _ := m.For(reflect.TypeFor[invoice](), ""); fns != nil {
		t.Error("OnAll has a type that was left out")
	}
	if fns, named := m.For(reflect.TypeFor[struct{}](), ""); len(fns) != 1 || named {
		t.Errorf("%d functions of a type that only OnAll asks for, named: %t", len(fns), named)
	}
	var got []core.Event
	for _, fn := range fns {
		events, err := fn(t.Context(), core.OpUpdate, &order{ID: 7})
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, events...)
	}
	want := []core.Event{
		{Type: "first.update", Data: 7},
		{Type: "second", AggregateID: "own", AggregateType: "own"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("events %+v, want %+v", got, want)
	}
}

func TestMappersReportMistakes(t *testing.T) {
	t.Parallel()
	var m adapter.Mappers
	adapter.On[order](&m, nil)
	adapter.On(&m, func(core.Op, **order) []core.Event { return nil })
	adapter.On[order](nil, nil)
	for _, want := range []string{"On[adapter_test.order] was given a nil function", "On[*adapter_test.order]: the " +
		"type must be the model's struct"} {
		if err := m.Err(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q in it", err, want)
		}
	}
}

func TestHasRecorder(t *testing.T) {
	t.Parallel()
	o := adapter.New(adapter.Config{}, "")
	for range 2 { // the second answer comes from memory
		if has, err := o.HasRecorder(reflect.TypeFor[order](), nil); !has || err != nil {
			t.Errorf("order: %t, %v", has, err)
		}
		if has, err := o.HasRecorder(reflect.TypeFor[struct{ *core.Recorder }](), nil); !has || err != nil {
			t.Errorf("embedded pointer: %t, %v", has, err)
		}
		if has, err := o.HasRecorder(reflect.TypeFor[int](), nil); has || err != nil {
			t.Errorf("int: %t, %v", has, err)
		}
		if has, err := o.HasRecorder(reflect.TypeFor[invoice](), nil); has || err == nil {
			t.Errorf("hidden: %t, %v", has, err)
		}
	}
}

// OnAll passes over the tables of the outbox, whatever their prefix, and of the inbox.
func TestOnAllAndOwnTables(t *testing.T) {
	t.Parallel()
	for prefix, tables := range map[string]map[string]bool{
		"":   {"outbox_event": true, "shop.outbox_key": true, "x_event": false, "inbox_seen": true, "events": false},
		"x_": {"x_event": true, "outbox_event": false, "x_inbox_key": true, "x_orders": false},
	} {
		for table, own := range tables {
			o := adapter.New(adapter.Config{Prefix: prefix}, "")
			adapter.OnAll(&o.Mappers, func(context.Context, core.Op, any) ([]core.Event, error) { return nil, nil })
			if fns, _ := o.Mappers.For(reflect.TypeFor[order](), table); (len(fns) == 0) != own {
				t.Errorf("prefix %q, table %s: %d functions", prefix, table, len(fns))
			}
			adapter.On(&o.Mappers, func(core.Op, *order) []core.Event { return nil })
			if fns, named := o.Mappers.For(reflect.TypeFor[order](), table); (len(fns) == 1) != own || !named {
				t.Errorf("prefix %q, table %s: %d functions with On, named: %t", prefix, table, len(fns), named)
			}
		}
	}
}
