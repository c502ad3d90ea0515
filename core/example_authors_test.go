package core_test

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/ormoutbox/ormoutbox/core"
)

// An id that a service makes before it publishes can be stored with the service's own data.
func ExampleNewEventID() {
	first, second := core.NewEventID(), core.NewEventID()
	fmt.Println(len(first), first < second)
	// Output: 36 true
}

// A middleware that adds headers checks them before it publishes.
func ExampleCheckHeader() {
	fmt.Println(core.CheckHeader("traceparent", "00-4bf9-00f0-01"))
	fmt.Println(core.CheckHeader("event_id", "mine") != nil, core.CheckHeader("two words", "x") != nil)
	// Output:
	// <nil>
	// true true
}

// An adapter takes the events from the model that its ORM has stored.
func ExampleRecorderOf() {
	type Order struct {
		ID string
		core.Recorder
	}
	order := &Order{ID: "7"}
	order.Record(core.Event{Type: "order.placed"})
	r, ok := core.RecorderOf(order)
	fmt.Println(ok, r.Recorded()[0].Type)
	// Output: true order.placed
}

// An adapter refuses a model whose events would be lost, when it first sees the type.
func ExampleCheckModel() {
	type Order struct {
		ID     string
		Events core.Recorder // in a named field: no adapter finds it
	}
	err := core.CheckModel(reflect.TypeFor[Order](), nil)
	fmt.Println(errors.Is(err, core.ErrHiddenRecorder))
	// Output: true
}

// A table gives a redriven event another row.
func ExampleFreshRowID() {
	eventID := core.NewEventID()
	a, err := core.FreshRowID(eventID)
	b, _ := core.FreshRowID(eventID)
	again, _ := core.ParseRowID(a.String()) // as a row id is read from a text column
	fmt.Println(a != b, again == a, err)
	// Output: true true <nil>
}

// A table publishes replayed events of a key in a sequence of their own.
func ExampleReplayKeyID() {
	key := core.NewKeyID("acme", "orders", "order/7")
	replays := core.ReplayKeyID(key)
	fmt.Println(replays != key, replays == core.ReplayKeyID(core.NewKeyID("acme", "orders", "order/7")))
	// Output: true true
}

// A component that calls functions of the user makes an error of their panics.
func ExampleNewPanicError() {
	call := func(fn func()) (err error) {
		defer func() {
			if value := recover(); value != nil {
				err = core.NewPanicError(value)
			}
		}()
		fn()
		return nil
	}
	err := call(func() { panic("no such currency") })
	p, ok := errors.AsType[*core.PanicError](err)
	fmt.Println(ok, p.Value)
	// Output: true no such currency
}
