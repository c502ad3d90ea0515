package contract_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/contract"
)

type placed1 struct {
	ID    string `json:"id"`
	Euros int    `json:"euros"`
}

type placed2 struct {
	ID    string `json:"id"`
	Cents int    `json:"cents"`
}

type placed3 struct {
	ID    string `json:"order_id" contract:"aggregate"`
	Cents int    `json:"cents"`
	Lines []line `json:"lines,omitempty"`
}

type line struct {
	SKU   string `json:"sku"`
	Count *int   `json:"count"`
}

// Validate refuses negative amounts.
func (p placed3) Validate() error {
	if p.Cents < 0 {
		return errors.New("cents are negative")
	}
	return nil
}

func up1(p placed1) (placed2, error) {
	if p.Euros == 666 {
		return placed2{}, errors.New("no such amount")
	}
	if p.Euros == 667 {
		return placed2{}, core.Transient(errors.New("try again"))
	}
	return placed2{p.ID, p.Euros * 100}, nil
}

func up2(p placed2) (placed3, error) { return placed3{ID: p.ID, Cents: p.Cents}, nil }

func spec() contract.Spec[placed3] {
	return contract.Spec[placed3]{
		Type: "order.placed", Version: 3, Owner: "orders", Description: "A customer has placed an order.",
		Topic: "sales", AggregateType: "order", Example: placed3{ID: "o-1", Cents: 4200},
		Older: []contract.Older{
			contract.From(1, placed1{"o-1", 42}, up1), contract.From(2, placed2{"o-1", 4200}, up2),
		},
	}
}

func placed() *contract.EventType[placed3] { return contract.Must(contract.Define(spec())) }

// message returns a message as our bridges write it.
func message(eventType, version, payload string) contract.Message {
	h := map[string]string{core.HeaderEventID: "e", core.HeaderEventType: eventType}
	if version != "" {
		h[core.HeaderSchemaVersion] = version
	}
	return contract.Message{Headers: h, Payload: []byte(payload)}
}

// Every declared version arrives as the current one.
func TestDecodeUpcasts(t *testing.T) {
	want := placed3{ID: "o-7", Cents: 4200}
	for version, payload := range map[string]string{
		"":  `{"id":"o-7","euros":42}`,
		"0": `{"id":"o-7","euros":42}`,
		"1": `{"id":"o-7","euros":42}`,
		"2": `{"id":"o-7","cents":4200}`,
		"3": `{"order_id":"o-7","cents":4200}`,
	} {
		got, err := placed().Decode(message("order.placed", version, payload))
		if err != nil || got.ID != want.ID || got.Cents != want.Cents {
			t.Errorf("version %q: %+v, %v", version, got, err)
		}
	}
}

// A field that a reader does not know changes nothing, at any depth and in any version.
func TestDecodeToleratesUnknownFields(t *testing.T) {
	for version, payload := range map[string]string{
		"1": `{"id":"o-7","euros":42,"new":{"deep":[1]}}`,
		"3": `{"order_id":"o-7","cents":4200,"new":1,"lines":[{"sku":"a","count":null,"new":null}]}`,
	} {
		if got, err := placed().Decode(message("order.placed", version, payload)); err != nil || got.Cents != 4200 {
			t.Errorf("version %s: %+v, %v", version, got, err)
		}
	}
}

// The error of a message that cannot be read is one to branch on. It has the class that the inbox
// and the relay act on, and its text says what is wrong.
func TestDecodeErrors(t *testing.T) {
	younger := spec()
	younger.Older = younger.Older[1:]
	from2 := contract.Must(contract.Define(younger))
	protobuf := message("order.placed", "3", "x")
	protobuf.Headers[core.HeaderContentType] = "application/protobuf"
	noDocument := contract.Message{
		Headers: map[string]string{"content-type": "application/cloudevents+json"}, Payload: []byte("{"),
	}
	for name, tc := range map[string]struct {
		of    *contract.EventType[placed3]
		m     contract.Message
		is    error
		class core.Class
		text  string
	}{
		"another type": {
			placed(), message("order.paid", "1", "{}"), contract.ErrUnknownType, core.ClassPermanent, `"order.paid"`,
		},
		"a newer version": {
			placed(), message("order.placed", "4", "{}"), contract.ErrNewerVersion, core.ClassKeyUnavailable,
			"is version 4, this program reads up to 3",
		},
		"an older version": {
			from2, message("order.placed", "1", "{}"), contract.ErrOlderVersion, core.ClassPermanent,
			"is version 1, this program reads from 2",
		},
		"no number": {
			placed(), message("order.placed", "three", "{}"), contract.ErrInvalidData, core.ClassPermanent, `"three"`,
		},
		"no JSON": {
			placed(), message("order.placed", "3", "{"), contract.ErrInvalidData, core.ClassPermanent,
			"unexpected end of JSON input",
		},
		"nothing": {
			placed(), message("order.placed", "3", " "), contract.ErrInvalidData, core.ClassPermanent, "is empty",
		},
		"null": {
			placed(), message("order.placed", "3", "null"), contract.ErrInvalidData, core.ClassPermanent, "it is null",
		},
		"a list": {
			placed(), message("order.placed", "3", "[]"), contract.ErrInvalidData, core.ClassPermanent, "array",
		},
		"another content type": {
			placed(), protobuf, contract.ErrInvalidData, core.ClassPermanent, "application/protobuf",
		},
		"a damaged CloudEvent": {
			placed(), noDocument, contract.ErrInvalidData, core.ClassPermanent, "",
		},
		"another kind": {
			placed(), message("order.placed", "3", `{"order_id":7,"cents":1}`), contract.ErrInvalidData,
			core.ClassPermanent, "order_id",
		},
		"a missing field": {
			placed(), message("order.placed", "3", `{"id":"o-7","cents":1}`), contract.ErrInvalidData,
			core.ClassPermanent, "field order_id is missing",
		},
		"a missing field of an older version": {
			placed(), message("order.placed", "1", `{"id":"o-7"}`), contract.ErrInvalidData, core.ClassPermanent,
			"version 1: field euros is missing",
		},
		"a missing field deep in the data": {
			placed(), message("order.placed", "3", `{"order_id":"o","cents":1,"lines":[{"sku":"a","count":1},{}]}`),
			contract.ErrInvalidData, core.ClassPermanent, "field lines[1].sku is missing",
		},
		"a field that is null": {
			placed(), message("order.placed", "3", `{"order_id":null,"cents":1}`), contract.ErrInvalidData,
			core.ClassPermanent, "field order_id is null",
		},
		"data that Validate refuses": {
			placed(), message("order.placed", "3", `{"order_id":"o","cents":-1}`), contract.ErrInvalidData,
			core.ClassPermanent, "cents are negative",
		},
		"data that From refuses": {
			placed(), message("order.placed", "1", `{"id":"o","euros":666}`), nil, core.ClassPermanent,
			"order.placed, from version 1 to 2: no such amount",
		},
		"data that From marks": {
			placed(), message("order.placed", "1", `{"id":"o","euros":667}`), nil, core.ClassTransient, "try again",
		},
	} {
		got, err := tc.of.Decode(tc.m)
		class, marked := core.ClassOf(err)
		if err == nil || tc.is != nil && !errors.Is(err, tc.is) || !marked || class != tc.class ||
			!strings.Contains(err.Error(), tc.text) || got.ID != "" {
			t.Errorf("%s: %+v, %s, %v", name, got, class, err)
		}
	}
}

// The event has what the declaration says, and Publish refuses it if a tagged field is empty or the
// data is not valid.
func TestEvent(t *testing.T) {
	data := placed3{ID: "o-7", Cents: 1}
	ev := placed().Event(data)
	if ev.Type != "order.placed" || ev.SchemaVersion != 3 || ev.Topic != "sales" || ev.AggregateType != "order" ||
		ev.AggregateID != "o-7" || ev.Key != "" || ev.ContentType != "" || ev.Payload != nil {
		t.Errorf("%+v", ev)
	}
	payload, _, err := core.JSON.Encode(t.Context(), ev.Data)
	if err != nil || string(payload) != `{"order_id":"o-7","cents":1}` {
		t.Errorf("%s, %v", payload, err)
	}
	for name, bad := range map[string]placed3{
		"field order_id is empty": {Cents: 1}, "cents are negative": {ID: "o-7", Cents: -1},
	} {
		_, _, err := core.JSON.Encode(t.Context(), placed().Event(bad).Data)
		if err == nil || !strings.Contains(err.Error(), "contract of order.placed, version 3: "+name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

type byPointer struct{ n int }

func (p *byPointer) MarshalJSON() ([]byte, error) { return json.Marshal(p.n) }

func (p *byPointer) UnmarshalJSON(b []byte) error { return json.Unmarshal(b, &p.n) }

type hasByPointer struct {
	P byPointer `json:"p"`
}

// A method MarshalJSON of a pointer is called, although the data is given by value. The data may
// change after that.
func TestEventEncodesByPointer(t *testing.T) {
	e := contract.Must(contract.Define(contract.Spec[hasByPointer]{
		Type: "t", Owner: "o", Description: "d", Example: hasByPointer{byPointer{1}},
	}))
	data := hasByPointer{byPointer{7}}
	ev := e.Event(data)
	data.P.n = 8
	payload, _, err := core.JSON.Encode(t.Context(), ev.Data)
	if err != nil || string(payload) != `{"p":7}` {
		t.Errorf("%s, %v", payload, err)
	}
	if example := e.Info().Versions[0].ExampleJSON; string(example) != `{"p":1}` {
		t.Errorf("%s", example)
	}
}

type uuid [2]byte

func (u uuid) MarshalText() ([]byte, error) { return fmt.Appendf(nil, "%x", u[:]), nil }

func (u *uuid) UnmarshalText(text []byte) error {
	_, err := fmt.Sscanf(string(text), "%02x%02x", &u[0], &u[1])
	return err
}

type base struct {
	Tenant uint8 `json:"tenant" contract:"key"`
}

type tagged struct {
	*base
	ID *uuid `json:"id" contract:"aggregate,pii"`
}

// Tags work on texts, numbers and types that marshal themselves, also behind pointers and in
// embedded structs.
func TestTags(t *testing.T) {
	e, err := contract.Define(contract.Spec[struct {
		base
		ID *uuid `json:"id" contract:"aggregate,pii"`
	}]{
		Type: "t", Owner: "o", Description: "d", Example: struct {
			base
			ID *uuid `json:"id" contract:"aggregate,pii"`
		}{base{7}, &uuid{1, 2}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ev := e.Event(struct {
		base
		ID *uuid `json:"id" contract:"aggregate,pii"`
	}{base{7}, &uuid{1, 0xff}})
	if ev.AggregateID != "01ff" || ev.Key != "7" || e.Info().Aggregate != "id" || e.Info().Key != "tenant" {
		t.Errorf("%+v, %+v", ev, e.Info())
	}
	for _, id := range []*uuid{nil, {}} {
		if _, _, err := core.JSON.Encode(t.Context(), e.Event(struct {
			base
			ID *uuid `json:"id" contract:"aggregate,pii"`
		}{base{7}, id}).Data); err == nil {
			t.Errorf("the id %v was taken", id)
		}
	}
	// An embedded pointer of an unexported type is written, and cannot be read.
	_, err = contract.Define(contract.Spec[tagged]{
		Type: "t", Owner: "o", Description: "d", Example: tagged{&base{7}, &uuid{1, 2}},
	})
	if err == nil {
		t.Error("an example that is not read back was taken")
	}
}

// A declaration names every mistake at once.
func TestDefineRefuses(t *testing.T) {
	type number struct {
		N float64 `contract:"key"`
	}
	type unknown struct {
		N string `contract:"pi"`
	}
	type two struct {
		A, B string `contract:"aggregate"`
	}
	type channel struct{ C chan int }
	type lossy struct {
		T lossyText
	}
	define := func(change func(*contract.Spec[placed3])) error {
		s := spec()
		change(&s)
		_, err := contract.Define(s)
		return err
	}
	for name, err := range map[string]error{
		"Type is empty; Owner is empty; Description is empty": func() error {
			_, err := contract.Define(contract.Spec[placed1]{Example: placed1{"o", 1}})
			return err
		}(),
		"Type has a control character": define(func(s *contract.Spec[placed3]) { s.Type = "a\nb" }),
		"Version is 4, and the last of Older is 2": define(func(s *contract.Spec[placed3]) {
			s.Version = 4
		}),
		"Older[1] is version 3, and should be 2": define(func(s *contract.Spec[placed3]) {
			s.Version, s.Older[1] = 4, contract.From(3, placed2{"o", 1}, up2)
		}),
		"Older[0] is version 0": define(func(s *contract.Spec[placed3]) {
			s.Older[0] = contract.From(0, placed1{"o", 1}, up1)
		}),
		"Version -1": func() error {
			_, err := contract.Define(contract.Spec[placed1]{
				Type: "t", Owner: "o", Description: "d", Version: -1, Example: placed1{"o", 1},
			})
			return err
		}(),
		"Older[1] is empty": define(func(s *contract.Spec[placed3]) { s.Older[1] = contract.Older{} }),
		"From(1) returns a contract_test.placed3, and version 2 is a contract_test.placed2": define(
			func(s *contract.Spec[placed3]) {
				s.Older[0] = contract.From(1, placed1{"o", 1}, func(placed1) (placed3, error) { return placed3{}, nil })
			}),
		"Example is empty": define(func(s *contract.Spec[placed3]) { s.Example = placed3{} }),
		"the example of From(2) is empty": define(func(s *contract.Spec[placed3]) {
			s.Older[1] = contract.From(2, placed2{}, up2)
		}),
		"the example of From(1) is not read back: contract: order.placed, from version 1 to 2: no such amount": define(
			func(s *contract.Spec[placed3]) { s.Older[0] = contract.From(1, placed1{"o", 666}, up1) }),
		"Example: contract of order.placed, version 3: field order_id is empty": define(
			func(s *contract.Spec[placed3]) { s.Example = placed3{Cents: 1} }),
		"cents are negative": define(func(s *contract.Spec[placed3]) { s.Example.Cents = -1 }),
		"is a *contract_test.placed1: use a struct": func() error {
			_, err := contract.Define(contract.Spec[*placed1]{
				Type: "t", Owner: "o", Description: "d", Example: &placed1{},
			})
			return err
		}(),
		"field N has the tag contract:\"key\", and is a float64": func() error {
			_, err := contract.Define(contract.Spec[number]{
				Type: "t", Owner: "o", Description: "d", Example: number{1},
			})
			return err
		}(),
		"field N has the tag contract:\"pi\": there are": func() error {
			_, err := contract.Define(contract.Spec[unknown]{
				Type: "t", Owner: "o", Description: "d", Example: unknown{"1"},
			})
			return err
		}(),
		"2 fields have the tag contract:\"aggregate\"": func() error {
			_, err := contract.Define(contract.Spec[two]{
				Type: "t", Owner: "o", Description: "d", Example: two{"1", "2"},
			})
			return err
		}(),
		"Example is not encoded: json: unsupported type: chan int": func() error {
			_, err := contract.Define(contract.Spec[channel]{
				Type: "t", Owner: "o", Description: "d", Example: channel{make(chan int)},
			})
			return err
		}(),
		"Example is not read back": func() error {
			_, err := contract.Define(contract.Spec[lossy]{
				Type: "t", Owner: "o", Description: "d", Example: lossy{"x"},
			})
			return err
		}(),
	} {
		for text := range strings.SplitSeq(name, "; ") {
			if !errors.Is(err, contract.ErrDeclaration) || !strings.Contains(err.Error(), text) {
				t.Errorf("%s: %v", text, err)
			}
		}
	}
}

type lossyText string

func (l lossyText) MarshalText() ([]byte, error) { return []byte(l), nil }

func (l *lossyText) UnmarshalText([]byte) error { return errors.New("no") }

func TestNewCatalog(t *testing.T) {
	define := func(name string, older ...contract.Older) contract.Entry {
		return contract.Must(contract.Define(contract.Spec[placed2]{
			Type: name, Owner: "o", Description: "d", Example: placed2{"o", 1}, Older: older,
		}))
	}
	c, err := contract.NewCatalog(define("b"), define("a.b"))
	if err != nil || len(c.Events()) != 2 || c.Events()[0].Type != "a.b" || c.Events()[0].Domain != "a" {
		t.Errorf("%+v, %v", c, err)
	}
	var none *contract.EventType[placed1]
	for text, entries := range map[string][]contract.Entry{
		`event type "a", version 1, is declared twice`: {define("a"), define("a")},
		`event type "a" is declared twice, as version 1 and 2: declare`: {
			define("a"), define("a", contract.From(1, placed1{"o", 1}, up1)),
		},
		`event types "a" and "A" differ in upper and lower case only`: {define("a"), define("A")},
		"entry 0 is nil": {nil},
		"entry 1 is nil": {define("a"), none},
	} {
		if _, err := contract.NewCatalog(entries...); !errors.Is(err, contract.ErrDeclaration) ||
			!strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", text, err)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("Must did not panic")
		}
	}()
	contract.Must(contract.NewCatalog(nil))
}

// Fields are those that encoding/json writes, in its order.
func TestFieldsAreThoseOfJSON(t *testing.T) {
	for _, v := range zoo {
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		var want, got []string
		d := json.NewDecoder(bytes.NewReader(text))
		for depth := 0; ; {
			token, err := d.Token()
			if err != nil {
				break
			}
			switch token {
			case json.Delim('{'), json.Delim('['):
				depth++
			case json.Delim('}'), json.Delim(']'):
				depth--
			default:
				if name, ok := token.(string); ok && depth == 1 {
					want = append(want, name)
					var value any
					if err := d.Decode(&value); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		for _, f := range contract.Fields(typeOf(v)) {
			got = append(got, f.Name)
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%T: %q, and encoding/json writes %q", v, got, want)
		}
	}
}
