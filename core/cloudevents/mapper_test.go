package cloudevents_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/cloudevents"
)

const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b9c7c989f97918e1-01"

func delivery() core.Delivery {
	return core.Delivery{Event: core.Event{
		ID: "018f2d3e-4c5b-7000-8000-000000000001", Type: "order.placed", AggregateType: "order", AggregateID: "o-1",
		Key: "order/o-1", OccurredAt: time.Date(2026, 5, 1, 10, 0, 0, 123456000, time.UTC),
		ContentType: "application/json", Payload: []byte(`{"total":4200}`),
		Headers: map[string]string{
			"traceparent": traceparent, "tracestate": "a=b", "x": "y", "causation_id": "e 1", "correlation_id": "c",
		},
	}, KeySeq: 42}
}

func TestMapper(t *testing.T) {
	t.Parallel()
	want := cloudevents.Event{
		ID: "018f2d3e-4c5b-7000-8000-000000000001", Source: "https://shop.example/orders", Type: "order.placed",
		Subject: "o-1", Time: time.Date(2026, 5, 1, 10, 0, 0, 123456000, time.UTC), DataContentType: "application/json",
		Extensions: map[string]string{
			"partitionkey": "order/o-1", "traceparent": traceparent, "tracestate": "a=b",
			"causationid": "e 1", "correlationid": "c",
		},
		Data: []byte(`{"total":4200}`),
	}
	for _, mode := range []cloudevents.Mode{cloudevents.ModeBinary, cloudevents.ModeStructured} {
		m := &cloudevents.Mapper{Source: want.Source, Binding: cloudevents.Kafka, Mode: mode}
		if err := m.Validate(); err != nil {
			t.Fatal(err)
		}
		msg, err := m.Message(delivery())
		if err != nil {
			t.Fatal(err)
		}
		if structured := strings.HasPrefix(msg.Headers["content-type"], "application/cloudevents+json"); structured !=
			(mode == cloudevents.ModeStructured) {
			t.Errorf("mode %d: content type %q", mode, msg.Headers["content-type"])
		}
		if got, err := cloudevents.Kafka.Decode(msg); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, %v, want %+v", got, err, want)
		}
	}
}

func TestMapperSubject(t *testing.T) {
	t.Parallel()
	m := &cloudevents.Mapper{Source: "/a", Binding: cloudevents.Kafka}
	d := delivery()
	d.AggregateID = ""
	if e, err := m.Event(d); err != nil || e.Subject != "order/o-1" {
		t.Errorf("%+v, %v, want the key as subject", e, err)
	}
	d.Key, d.Headers = "", nil
	if e, err := m.Event(d); err != nil || e.Subject != "" || len(e.Extensions) != 0 {
		t.Errorf("%+v, %v, want neither subject nor extensions", e, err)
	}
}

// A trace never stops an event, and a bad key does.
func TestMapperRefuses(t *testing.T) {
	t.Parallel()
	m := &cloudevents.Mapper{Source: "/a", Binding: cloudevents.Kafka}
	d := delivery()
	for _, headers := range []map[string]string{
		{"traceparent": "a\u0085", "tracestate": "a=b"}, {"tracestate": "a=b"},
	} {
		d.Headers = headers
		if e, err := m.Event(d); err != nil || len(e.Extensions) != 1 {
			t.Errorf("%+v, %v, want no trace and no state without one", e, err)
		}
	}
	d.Key = "a\u0085"
	if _, err := m.Message(d); !errors.Is(err, cloudevents.ErrInvalid) {
		t.Errorf("a key with a control character: %v", err)
	}
	cause := errors.New("no schema")
	m.Edit = func(core.Delivery, *cloudevents.Event) error { return cause }
	if _, err := m.Message(delivery()); !errors.Is(err, cause) {
		t.Errorf("%v, want the error of Edit", err)
	}
	m.Edit = func(_ core.Delivery, e *cloudevents.Event) error {
		e.Extensions["Tenant"] = "acme"
		return nil
	}
	if _, err := m.Message(delivery()); !errors.Is(err, cloudevents.ErrInvalid) {
		t.Errorf("a bad name: %v", err)
	}
}

func TestMapperValidate(t *testing.T) {
	t.Parallel()
	err := (&cloudevents.Mapper{Mode: 7, Binding: 9}).Validate()
	for _, says := range []string{"Source is empty", "Mode is 7", "binding(9)"} {
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v does not say %q", err, says)
		}
	}
	if err := (&cloudevents.Mapper{Source: "a b", Binding: cloudevents.HTTP}).Validate(); err == nil {
		t.Error("a source with a blank is taken")
	}
}
