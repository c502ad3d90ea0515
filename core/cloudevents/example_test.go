package cloudevents_test

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/cloudevents"
)

func ExampleMapper() {
	m := &cloudevents.Mapper{
		Source: "https://shop.example/orders", Binding: cloudevents.Kafka,
		Edit: func(d core.Delivery, e *cloudevents.Event) error {
			e.Type = "com.example." + e.Type
			e.DataSchema = fmt.Sprintf("https://shop.example/schemas/%s/%d", d.Type, d.SchemaVersion)
			return nil
		},
	}
	if err := m.Validate(); err != nil {
		fmt.Println(err)
		return
	}
	msg, err := m.Message(core.Delivery{Event: core.Event{
		ID: "018f2d3e-4c5b-7000-8000-000000000001", Type: "order.placed", SchemaVersion: 2, AggregateID: "o-1",
		Key: "order/o-1", ContentType: "application/json", Payload: []byte(`{"total":4200}`),
	}})
	for _, name := range slices.Sorted(maps.Keys(msg.Headers)) {
		fmt.Println(name+":", msg.Headers[name])
	}
	fmt.Println(string(msg.Body), err)
	// Output:
	// ce_dataschema: https://shop.example/schemas/order.placed/2
	// ce_id: 018f2d3e-4c5b-7000-8000-000000000001
	// ce_partitionkey: order/o-1
	// ce_source: https://shop.example/orders
	// ce_specversion: 1.0
	// ce_subject: o-1
	// ce_type: com.example.order.placed
	// content-type: application/json
	// {"total":4200} <nil>
}

func ExampleMapper_Event() {
	m := &cloudevents.Mapper{Source: "/orders", Binding: cloudevents.NATS}
	e, err := m.Event(core.Delivery{Event: core.Event{ID: "1", Type: "order.placed"}})
	fmt.Println(e.Source, e.ID, e.Type, err)
	// Output: /orders 1 order.placed <nil>
}

// A webhook receives CloudEvents in both modes.
func ExampleBinding_Decode() {
	receive := func(r *http.Request) (cloudevents.Event, error) {
		headers, err := cloudevents.Header(r.Header)
		if err != nil {
			return cloudevents.Event{}, err
		}
		body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
		if err != nil {
			return cloudevents.Event{}, err
		}
		return cloudevents.HTTP.Decode(cloudevents.Message{Headers: headers, Body: body})
	}
	r := httptest.NewRequest(http.MethodPost, "/events", strings.NewReader(`{"total":4200}`))
	r.Header.Set("Ce-Specversion", "1.0")
	r.Header.Set("Ce-Id", "1")
	r.Header.Set("Ce-Source", "/orders")
	r.Header.Set("Ce-Type", "order.placed")
	r.Header.Set("Content-Type", "application/json")
	e, err := receive(r)
	fmt.Println(e.Source, e.ID, e.Type, string(e.Data), err)

	r.Header.Del("Ce-Id")
	_, err = receive(r)
	fmt.Println(errors.Is(err, cloudevents.ErrInvalid), err)
	// Output:
	// /orders 1 order.placed {"total":4200} <nil>
	// true cloudevents: invalid event: id is missing
}

func ExampleBinding_Binary() {
	e := cloudevents.Event{ID: "1", Source: "/orders", Type: "order.placed", Subject: "Jo Müller"}
	msg, err := cloudevents.HTTP.Binary(e)
	fmt.Println(msg.Headers["ce-subject"], err)
	e.Extensions = map[string]string{"tenant_id": "acme"}
	_, err = cloudevents.HTTP.Binary(e)
	fmt.Println(err)
	// Output:
	// Jo%20M%C3%BCller <nil>
	// cloudevents: invalid event: attribute name "tenant_id" has other characters than a-z and 0-9
}

func ExampleBinding_Structured() {
	msg, err := cloudevents.AMQP.Structured(cloudevents.Event{
		ID: "1", Source: "/orders", Type: "order.placed",
		DataContentType: "application/json", Data: []byte(`{"total":4200}`),
	})
	fmt.Println(msg.Headers["content-type"], err)
	fmt.Println(strings.ReplaceAll(string(msg.Body), ",", ",\n"))
	// Output:
	// application/cloudevents+json; charset=utf-8 <nil>
	// {"specversion":"1.0",
	// "id":"1",
	// "source":"/orders",
	// "type":"order.placed",
	// "datacontenttype":"application/json",
	// "data":{"total":4200}}
}

func ExampleBinding_Owns() {
	fmt.Println(cloudevents.HTTP.Owns("Ce-Id"), cloudevents.Kafka.Owns("event_id"))
	// Output: true false
}

func ExampleEvent_Validate() {
	fmt.Println(cloudevents.Event{ID: "1", Source: "/orders", DataContentType: "json"}.Validate())
	// Output:
	// cloudevents: invalid event: type is missing
	// datacontenttype "json" is not a media type such as application/json
}

func ExampleHeader() {
	headers, err := cloudevents.Header(http.Header{"Ce-Id": {"1"}, "Accept": {"a", "b"}})
	fmt.Println(headers["Ce-Id"], headers["Accept"], err)
	// Output: 1 a <nil>
}

func ExampleMessage_Attributes() {
	attrs := cloudevents.Message{Headers: map[string]string{"ce_id": "1", "ce_source": "/orders"}}.Attributes()
	fmt.Println(attrs["source"], attrs["id"])
	// Output: /orders 1
}

// A bridge of one's own leaves out the headers of an event that readers would take for the
// CloudEvent's.
func ExampleMapper_Collides() {
	var m cloudevents.Mapper
	fmt.Println(m.Collides("ce_id"), m.Collides("Content-Type"), m.Collides("color"))
	// Output: true true false
}
