package core_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
)

func deliveryTo(topic string) core.Delivery { return core.Delivery{Event: core.Event{Topic: topic}} }

func TestRouter(t *testing.T) {
	var called string
	as := func(name string) func(context.Context, core.Delivery) error {
		return func(context.Context, core.Delivery) error { called += name; return nil }
	}
	for _, r := range []*core.Router{core.NewRouter(), {}} {
		r.Handle("b", core.PublisherFunc(as("lost")))
		r.HandleFunc("b", as("b")) // the last handler of a topic wins
		r.HandleFunc("a", as("a"))
		if got := r.Topics(); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("topics %q", got)
		}
		err := r.Publish(t.Context(), deliveryTo("c"))
		class, marked := core.ClassOf(err)
		if !errors.Is(err, core.ErrNoRoute) || !marked || class != core.ClassUnavailable {
			t.Errorf("a topic without a route: %v, class %s", err, class)
		}
		r.HandleOther(core.PublisherFunc(as("*")))
		if r.Topics() != nil {
			t.Errorf("topics %q, want every topic", r.Topics())
		}
		called = ""
		for _, topic := range []string{"a", "b", "c", "B", ""} {
			noError(t, r.Publish(t.Context(), deliveryTo(topic)))
		}
		equal(t, called, "ab***", "called")
	}
}

func TestRouterPassesErrorsAndReceiptsOn(t *testing.T) {
	reason := errors.New("reason")
	withReceipt := &outboxtest.Publisher{}
	withReceipt.Receipts(func(d core.Delivery) string { return d.Topic + "/0@1" })
	r := core.NewRouter()
	r.HandleFunc("a", func(context.Context, core.Delivery) error { return reason })
	r.Handle("b", withReceipt)
	r.HandleFunc("c", func(context.Context, core.Delivery) error { return nil })
	wantErr(t, r.Publish(t.Context(), deliveryTo("a")), reason, "error")
	for topic, want := range map[string]string{"b": "b/0@1", "c": ""} {
		if receipt, err := r.PublishWithReceipt(t.Context(), deliveryTo(topic)); err != nil || receipt != want {
			t.Errorf("topic %s: receipt %q, %v", topic, receipt, err)
		}
	}
}
