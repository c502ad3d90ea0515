package contract_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

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

// Each policy has its class in the relay and the inbox, and nothing is skipped in silence.
func TestHandlersPolicies(t *testing.T) {
	unknown, newer := message("order.paid", "1", "{}"), message("order.placed", "4", "{}")
	nameless := contract.Message{Payload: []byte("{}")}
	for _, tc := range []struct {
		cfg   contract.HandlersConfig
		m     contract.Message
		is    error
		class core.Class
	}{
		{contract.HandlersConfig{}, newer, contract.ErrNewerVersion, core.ClassKeyUnavailable},
		{
			contract.HandlersConfig{NewerVersion: contract.DeadLetter},
			newer, contract.ErrNewerVersion,
			core.ClassPermanent,
		},
		{contract.HandlersConfig{NewerVersion: contract.Skip}, newer, nil, 0},
		{contract.HandlersConfig{}, unknown, contract.ErrUnknownType, core.ClassPermanent},
		{contract.HandlersConfig{}, nameless, contract.ErrUnknownType, core.ClassPermanent},
		{
			contract.HandlersConfig{UnknownType: contract.Wait},
			unknown, contract.ErrUnknownType,
			core.ClassKeyUnavailable,
		},
		{contract.HandlersConfig{UnknownType: contract.Skip}, unknown, nil, 0},
	} {
		var log bytes.Buffer
		tc.cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
		h, err := contract.NewHandlers(tc.cfg, placed().Handle(
			func(context.Context, contract.Message, placed3) error { t.Error("it was handled"); return nil }))
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			err = h.Handle(t.Context(), tc.m)
			class, _ := core.ClassOf(err)
			if !errors.Is(err, tc.is) || class != tc.class {
				t.Errorf("%+v: %s, %v", tc.cfg, class, err)
			}
		}
		lines := strings.Count(log.String(), "\n")
		if want := map[bool]int{true: 1}[tc.is == nil]; lines != want {
			t.Errorf("%+v: %d lines, want %d: %s", tc.cfg, lines, want, log.String())
		}
	}
}

// The handler's own errors come back as they are, even if they are about other data.
func TestHandlersReturnTheHandlersError(t *testing.T) {
	var got placed3
	result := error(nil)
	paid := contract.Must(contract.Define(contract.Spec[placed1]{
		Type: "order.paid", Owner: "o", Description: "d", Example: placed1{"o", 1},
	}))
	h, err := contract.NewHandlers(contract.HandlersConfig{NewerVersion: contract.Skip},
		placed().Handle(func(_ context.Context, m contract.Message, data placed3) error {
			if m.Headers[core.HeaderEventID] != "e" {
				t.Errorf("%+v", m)
			}
			got = data
			return result
		}), paid.Ignore())
	if err != nil {
		t.Fatal(err)
	}
	for _, result = range []error{nil, contract.ErrNewerVersion, core.Transient(errors.New("no"))} {
		got = placed3{}
		err := h.Handle(t.Context(), message("order.placed", "1", `{"id":"o-7","euros":42}`))
		if !errors.Is(err, result) || got.ID != "o-7" || got.Cents != 4200 {
			t.Errorf("%+v, %v, want %v", got, err, result)
		}
	}
	if err := h.Handle(t.Context(), message("order.paid", "9", "nothing")); err != nil {
		t.Error(err)
	}
	if err := h.Handle(t.Context(), message("order.placed", "1", "{}")); !errors.Is(err, contract.ErrInvalidData) {
		t.Error(err)
	}
}

func TestNewHandlersRefuses(t *testing.T) {
	for text, make := range map[string]func() (*contract.Handlers, error){
		"there is no Handler": func() (*contract.Handlers, error) {
			return contract.NewHandlers(contract.HandlersConfig{})
		},
		`event type "order.placed" has two Handlers`: func() (*contract.Handlers, error) {
			return contract.NewHandlers(contract.HandlersConfig{}, placed().Ignore(), placed().Ignore())
		},
		"a Handler is empty": func() (*contract.Handlers, error) {
			return contract.NewHandlers(contract.HandlersConfig{}, contract.Handler{})
		},
		`the Handler of event type "order.placed" has no function`: func() (*contract.Handlers, error) {
			return contract.NewHandlers(contract.HandlersConfig{}, placed().Handle(nil))
		},
		"HandlersConfig.NewerVersion is policy(4)": func() (*contract.Handlers, error) {
			return contract.NewHandlers(contract.HandlersConfig{NewerVersion: 4}, placed().Ignore())
		},
		"HandlersConfig.UnknownType is policy(9)": func() (*contract.Handlers, error) {
			return contract.NewHandlers(contract.HandlersConfig{UnknownType: 9}, placed().Ignore())
		},
	} {
		if _, err := make(); !errors.Is(err, contract.ErrDeclaration) || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// A publisher that handles events in its process gets the message that a broker would deliver.
func TestMessageOf(t *testing.T) {
	at := time.Date(2026, 3, 4, 5, 6, 7, 8000, time.UTC)
	m := contract.MessageOf(core.Delivery{
		Event: core.Event{
			ID: "e", Type: "order.placed", SchemaVersion: 2, AggregateType: "order", AggregateID: "o-7",
			AggregateVersion: 3, TenantID: "acme", Key: "order/o-7", OccurredAt: at, ContentType: "application/json",
			Headers: map[string]string{"trace": "1"}, Payload: []byte(`{"id":"o-7","cents":1}`),
		},
		KeySeq: 9,
	})
	want := map[string]string{
		"event_id": "e", "event_type": "order.placed", "schema_version": "2", "aggregate_type": "order",
		"aggregate_id": "o-7", "aggregate_version": "3", "tenant_id": "acme", "partition_key": "order/o-7",
		"key_seq": "9", "occurred_at": "2026-03-04T05:06:07.000008Z", "content-type": "application/json", "trace": "1",
	}
	if fmt.Sprint(m.Headers) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", m.Headers, want)
	}
	if got, err := placed().Decode(m); err != nil || got.ID != "o-7" {
		t.Errorf("%+v, %v", got, err)
	}
}
