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
	var c adapter.Captured
	fns, _ := own.Mappers.For(typ, "orders")
	for _, fn := range fns {
		if err := c.Map(ctx, fn, core.OpCreate, v, key.Text()); err != nil {
			return err
		}
	}
	if r, pending, err := adapter.Pending(v); err != nil {
		return err
	} else if pending {
		events, err := c.Take(r)
		if err != nil {
			return err
		}
		c.Add(events, v, key.Text())
	}
	if err := own.Publish(ctx, tx, c.Events()...); err != nil {
		c.Conclude(core.RolledBack)
		return err
	}
	tx.OnOutcome(c.Conclude)
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
func ExampleNamed() {
	fmt.Println(adapter.Named([]core.Event{{AggregateID: "7"}}), adapter.Named([]core.Event{{}}))
	// Output: true false
}

// The Recorder of a model is found by reflection.
func ExampleRecorderOf() {
	o := &order{ID: 7}
	r, ok := adapter.RecorderOf(reflect.ValueOf(o))
	fmt.Println(ok, r == &o.Recorder)
	// Output: true true
}
