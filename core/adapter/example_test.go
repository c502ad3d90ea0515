package adapter_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/adapter"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
)

// capture does the work of an adapter after a statement of its ORM that inserted a model.
func capture(ctx context.Context, own *adapter.Outbox, tx core.Tx, model any) error {
	v := reflect.ValueOf(model)
	typ := v.Type().Elem()
	var key adapter.Key
	if err := key.Add(v.Elem().FieldByName("ID").Interface(), false); err != nil {
		return err
	}
	if key.Text() == "" {
		return fmt.Errorf("%w: %s has no key", core.ErrNoAggregateID, typ.Name())
	}
	var events []core.Event
	fns, _ := own.Mappers.For(typ, "orders")
	for _, fn := range fns {
		mapped, err := fn(ctx, core.OpCreate, model)
		if err != nil {
			return err
		}
		events = append(events, mapped...)
	}
	conclude := func(core.Outcome) {}
	if r, pending, err := adapter.Pending(v); err != nil {
		return err
	} else if pending {
		var recorded []core.Event
		if recorded, conclude, err = r.HandOver(); err != nil {
			return err
		}
		events = append(events, recorded...)
	}
	for n := range events {
		events[n].AggregateType, events[n].AggregateID = "order", key.Text()
	}
	if err := own.Publish(ctx, tx, events...); err != nil {
		conclude(core.RolledBack)
		return err
	}
	tx.OnOutcome(conclude)
	return nil
}

// A short adapter: On functions and recorded events of a model that was stored.
func ExampleNew() {
	repo := outboxtest.NewRepository()
	shared, err := core.New(core.Config{Repository: repo})
	if err != nil {
		panic(err)
	}
	own := adapter.New(adapter.Config{Outbox: shared}, "call Open")
	ctx := context.Background()
	if err := own.Open(ctx, core.Postgres,
		func() (*sql.DB, error) { return nil, errors.New("not needed") }); err != nil {
		panic(err)
	}
	adapter.On(&own.Mappers, func(op core.Op, o *order) []core.Event {
		return []core.Event{{Type: "order." + op.String()}}
	})
	adapter.OnContext(&own.Mappers, func(context.Context, core.Op, *order) ([]core.Event, error) { return nil, nil })

	o := &order{ID: 7}
	o.Record(core.Event{Type: "order.placed"})
	err = repo.Transactor().RunInTx(ctx,
		func(ctx context.Context, tx core.Tx) error { return capture(ctx, own, tx, o) })
	fmt.Println(err, len(o.Recorded()))
	for _, row := range repo.Rows() {
		fmt.Println(row.Event.Type, row.Event.AggregateType, row.Event.AggregateID)
	}
	// Unordered output:
	// <nil> 0
	// order.create order 7
	// order.placed order 7
}

// Keys of rows become the aggregate ids of events.
func ExampleKeyText() {
	for _, key := range []any{int64(7), "seven", []byte{0xca, 0xfe}} {
		text, err := adapter.KeyText(key)
		fmt.Println(text, err)
	}
	// Output:
	// 7 <nil>
	// seven <nil>
	// cafe <nil>
}

// A statement whose row is not known may still write events that name their aggregate.
// The Recorder of a model is found by reflection.
