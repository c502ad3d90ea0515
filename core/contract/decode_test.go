package contract_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/cloudevents"
	"github.com/ormoutbox/ormoutbox/core/contract"
)

type tree struct {
	Name     string           `json:"name"`
	Left     *tree            `json:"left,omitempty"`
	Children []*tree          `json:"children,omitempty"`
	ByName   map[string]*tree `json:"by_name,omitempty"`
}

// Required fields are looked for at any depth, also in a type that contains itself.
func TestDecodeChecksEveryDepth(t *testing.T) {
	e := contract.Must(contract.Define(contract.Spec[tree]{
		Type: "t", Owner: "o", Description: "d", Example: tree{Name: "x"},
	}))
	for _, tc := range []struct{ payload, want string }{
		{`{"name":"a","left":{"name":"b","left":null},"children":[null,{"name":"c"}],"by_name":{"d":null}}`, ""},
		{`{"name":"a","left":{"name":"b","left":{}}}`, "field left.left.name is missing"},
		{`{"name":"a","children":[{"name":"b","children":[null,{}]}]}`, "children[0].children[1].name is missing"},
		{`{"name":"a","by_name":{"d":{"name":"e","by_name":{"f":{}}}}}`, "field by_name.d.by_name.f.name is missing"},
		{`{"name":"a","left":{"name":null}}`, "field left.name is null"},
		{`{"name":"a","left":[{"name":1}]}`, "cannot unmarshal array"},
		{`{"name":"a","children":{"name":"b"}}`, "cannot unmarshal object"},
	} {
		_, err := e.Decode(message("t", "1", tc.payload))
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", tc.payload, err, tc.want)
		}
	}
}

// No message makes the program panic, and every error has a class.
func FuzzDecode(f *testing.F) {
	f.Add("order.placed", "3", "application/json", `{"order_id":"o","cents":1,"lines":[{"sku":"a","count":1}]}`)
	f.Add("", "", "application/cloudevents+json", `{"id":"1","source":"s","type":"t","specversion":"1.0","data":{}}`)
	f.Add("x", "0", "text/plain", `[[{}]]`)
	e := placed()
	f.Fuzz(func(t *testing.T, eventType, version, contentType, payload string) {
		m := message(eventType, version, payload)
		m.Headers[core.HeaderContentType] = contentType
		if _, err := e.Decode(m); err != nil {
			if _, marked := core.ClassOf(err); !marked {
				t.Errorf("%v has no class", err)
			}
		}
	})
}

// A CloudEvent is read in both modes, with and without headers of our own.
func TestDecodeCloudEvents(t *testing.T) {
	e := cloudevents.Event{
		ID: "e", Source: "/orders", Type: "order.placed", DataContentType: "application/json",
		Data: []byte(`{"id":"o-7","euros":42}`),
	}
	for _, b := range []cloudevents.Binding{
		cloudevents.Kafka, cloudevents.AMQP, cloudevents.AMQPUnderscore, cloudevents.NATS, cloudevents.HTTP,
	} {
		for name, make := range map[string]func(cloudevents.Event) (cloudevents.Message, error){
			"binary": b.Binary, "structured": b.Structured,
		} {
			m, err := make(e)
			if err != nil {
				t.Fatal(err)
			}
			got, err := placed().Decode(contract.Message{Headers: m.Headers, Payload: m.Body})
			if err != nil || got.Cents != 4200 {
				t.Errorf("%s, %s: %+v, %v", b, name, got, err)
			}
			other := contract.Must(contract.Define(contract.Spec[placed1]{
				Type: "order.paid", Owner: "o", Description: "d", Example: placed1{"o", 1},
			}))
			_, err = other.Decode(contract.Message{Headers: m.Headers, Payload: m.Body})
			if !errors.Is(err, contract.ErrUnknownType) {
				t.Errorf("%s, %s: another type: %v", b, name, err)
			}
			m.Headers[core.HeaderEventType], m.Headers[core.HeaderSchemaVersion] = "order.placed", "4"
			_, err = placed().Decode(contract.Message{Headers: m.Headers, Payload: m.Body})
			if !errors.Is(err, contract.ErrNewerVersion) {
				t.Errorf("%s, %s: our own headers: %v", b, name, err)
			}
			edited := e
			edited.Type = "example.shop." + e.Type // as a Mapper with Edit writes it
			if m, err = make(edited); err != nil {
				t.Fatal(err)
			}
			m.Headers[core.HeaderEventType] = e.Type
			if _, err := placed().Decode(contract.Message{Headers: m.Headers, Payload: m.Body}); err != nil {
				t.Errorf("%s, %s: another type of the CloudEvent: %v", b, name, err)
			}
		}
	}
}
