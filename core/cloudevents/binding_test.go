package cloudevents_test

import (
	"errors"
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core/cloudevents"
)

// someEvent is the event of the examples in the specification's bindings.
func someEvent(contentType, data string) cloudevents.Event {
	return cloudevents.Event{
		ID: "1234-1234-1234", Source: "/mycontext/subcontext", Type: "com.example.someevent",
		Time: time.Date(2018, 4, 5, 3, 56, 24, 0, time.UTC), DataContentType: contentType, Data: []byte(data),
	}
}

// bindings has the example of each binding in binary mode.
var bindings = map[cloudevents.Binding]struct {
	contentType string
	headers     map[string]string
}{
	cloudevents.Kafka: {"application/avro", map[string]string{
		"ce_specversion": "1.0", "ce_type": "com.example.someevent", "ce_source": "/mycontext/subcontext",
		"ce_id": "1234-1234-1234", "ce_time": "2018-04-05T03:56:24Z", "content-type": "application/avro",
	}},
	cloudevents.AMQPUnderscore: {"application/json; charset=utf-8", map[string]string{
		"cloudEvents_specversion": "1.0", "cloudEvents_type": "com.example.someevent",
		"cloudEvents_time": "2018-04-05T03:56:24Z", "cloudEvents_id": "1234-1234-1234",
		"cloudEvents_source": "/mycontext/subcontext", "content-type": "application/json; charset=utf-8",
	}},
	cloudevents.AMQP: {"application/json; charset=utf-8", map[string]string{
		"cloudEvents:specversion": "1.0", "cloudEvents:type": "com.example.someevent",
		"cloudEvents:time": "2018-04-05T03:56:24Z", "cloudEvents:id": "1234-1234-1234",
		"cloudEvents:source": "/mycontext/subcontext", "content-type": "application/json; charset=utf-8",
	}},
	cloudevents.NATS: {"application/json", map[string]string{
		"ce-specversion": "1.0", "ce-type": "com.example.someevent", "ce-time": "2018-04-05T03:56:24Z",
		"ce-id": "1234-1234-1234", "ce-source": "/mycontext/subcontext", "ce-datacontenttype": "application/json",
	}},
	cloudevents.HTTP: {"application/json; charset=utf-8", map[string]string{
		"ce-specversion": "1.0", "ce-type": "com.example.someevent", "ce-time": "2018-04-05T03:56:24Z",
		"ce-id": "1234-1234-1234", "ce-source": "/mycontext/subcontext",
		"content-type": "application/json; charset=utf-8",
	}},
}

// A header of the user does not hide the content type of a message of Kafka or AMQP, whose header
// names are case-sensitive.
func TestTheContentTypeIsThatOfTheBinding(t *testing.T) {
	t.Parallel()
	for b := cloudevents.Kafka; b <= cloudevents.AMQPUnderscore; b++ {
		m, err := b.Binary(someEvent("application/json", "{}"))
		if err != nil {
			t.Fatal(err)
		}
		m.Headers["Content-Type"] = "application/cloudevents+json"
		if e, err := b.Decode(m); err != nil || e.DataContentType != "application/json" {
			t.Errorf("%s: %+v, %v", b, e, err)
		}
	}
}

func TestBinaryIsAsInTheSpecification(t *testing.T) {
	t.Parallel()
	for b, want := range bindings {
		t.Run(b.String(), func(t *testing.T) {
			t.Parallel()
			e := someEvent(want.contentType, `{"a": 1}`)
			got, err := b.Binary(e)
			if err != nil || !maps.Equal(got.Headers, want.headers) || string(got.Body) != `{"a": 1}` {
				t.Errorf("%q, %v, want %q", got, err, want.headers)
			}
			back, err := b.Decode(got)
			if err != nil || !reflect.DeepEqual(back, e) {
				t.Errorf("%+v, %v, want %+v", back, err, e)
			}
		})
	}
}

func TestEveryBindingAndModeKeepsTheEvent(t *testing.T) {
	t.Parallel()
	full := someEvent("text/plain; charset=utf-8", "Grüße\x00\xff")
	full.ID, full.Subject, full.DataSchema = `50% "off" é`, "Euro € 😀", "https://example.com/schema/v1#order"
	full.Time = full.Time.Add(123456 * time.Microsecond)
	full.Extensions = map[string]string{"partitionkey": "order/o 1", "sequence": "007", "x": ""}
	bare := cloudevents.Event{ID: "1", Source: "a", Type: "t"}
	for b := range bindings {
		for mode, encode := range map[string]func(cloudevents.Event) (cloudevents.Message, error){
			"binary": b.Binary, "structured": b.Structured,
		} {
			t.Run(b.String()+" "+mode, func(t *testing.T) {
				t.Parallel()
				for _, e := range []cloudevents.Event{full, bare} {
					m, err := encode(e)
					if err != nil || m.Body == nil {
						t.Fatalf("%v, %v", m, err)
					}
					if got, err := b.Decode(m); err != nil || !reflect.DeepEqual(got, e) {
						t.Errorf("%+v, %v, want %+v", got, err, e)
					}
				}
			})
		}
	}
}

func TestPercentEncoding(t *testing.T) {
	t.Parallel()
	for _, b := range []cloudevents.Binding{cloudevents.NATS, cloudevents.HTTP} {
		e := someEvent("", "")
		e.Subject = "Euro € 😀"
		m, err := b.Binary(e)
		if want := "Euro%20%E2%82%AC%20%F0%9F%98%80"; err != nil || m.Headers["ce-subject"] != want {
			t.Errorf("%s: %q, %v, want %q", b, m.Headers["ce-subject"], err, want)
		}
		for text, want := range map[string]string{
			"Euro%20%e2%82%ac%20%F0%9F%98%80": "Euro € 😀", // lower case, too
			"%41%62c":                         "Abc",      // needlessly encoded
			`"a \"b\" \\ c"`:                  `a "b" \ c`,
			` "Euro%20" `:                     "Euro ",
			"Euro €":                          "Euro €",
			"%2525":                           "%25", // decoded once
		} {
			m.Headers["ce-subject"] = text
			if got, err := b.Decode(m); err != nil || got.Subject != want {
				t.Errorf("%s: %q is %q, %v, want %q", b, text, got.Subject, err, want)
			}
		}
		for _, text := range []string{"%C0%A0", "%", "%4", "%zz", "a%ff", "\xff"} {
			m.Headers["ce-subject"] = text
			if got, err := b.Decode(m); !errors.Is(err, cloudevents.ErrInvalid) {
				t.Errorf("%s: %q is taken as %q, %v", b, text, got.Subject, err)
			}
		}
	}
}

func TestHeaderNamesOfHTTPHaveAnyCase(t *testing.T) {
	t.Parallel()
	headers, err := cloudevents.Header(map[string][]string{
		"Ce-Id": {"1"}, "CE-SOURCE": {"/a"}, "ce-Type": {"t"}, "Ce-Specversion": {"1.0"},
		"CONTENT-TYPE": {"text/plain"}, "Accept": {"a", "b"}, "Empty": nil,
	})
	if err != nil {
		t.Fatal(err)
	}
	want := cloudevents.Event{ID: "1", Source: "/a", Type: "t", DataContentType: "text/plain"}
	if got, err := cloudevents.HTTP.Decode(cloudevents.Message{Headers: headers}); err != nil ||
		!reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	if _, err := cloudevents.Header(map[string][]string{"Ce-Id": {"1", "2"}}); !errors.Is(err, cloudevents.ErrInvalid) {
		t.Errorf("two ids: %v", err)
	}
}

func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	type set = map[string]string
	const missing = "" // as a value: the header is removed
	invalid := cloudevents.ErrInvalid
	for name, tt := range map[string]struct {
		binding cloudevents.Binding
		change  set
		want    error
		says    string
	}{
		"no id":               {cloudevents.Kafka, set{"ce_id": missing}, invalid, "id is missing"},
		"no source":           {cloudevents.Kafka, set{"ce_source": missing}, invalid, "source is missing"},
		"no type":             {cloudevents.NATS, set{"ce-type": missing}, invalid, "type is missing"},
		"no version":          {cloudevents.HTTP, set{"ce-specversion": missing}, invalid, "specversion is missing"},
		"version 0.3":         {cloudevents.AMQP, set{"cloudEvents:specversion": "0.3"}, cloudevents.ErrVersion, "0.3"},
		"version 1.0.2":       {cloudevents.Kafka, set{"ce_specversion": "1.0.2"}, cloudevents.ErrVersion, "1.0.2"},
		"a name in capitals":  {cloudevents.Kafka, set{"ce_Tenant": "x"}, invalid, `"Tenant"`},
		"a name with a dash":  {cloudevents.HTTP, set{"Ce-My-Ext": "x"}, invalid, `"my-ext"`},
		"an empty name":       {cloudevents.NATS, set{"ce-": "x"}, invalid, `name ""`},
		"the name data":       {cloudevents.Kafka, set{"ce_data": "x"}, invalid, `"data"`},
		"a bad source":        {cloudevents.Kafka, set{"ce_source": "/a b"}, invalid, "source"},
		"a relative schema":   {cloudevents.Kafka, set{"ce_dataschema": "/v1"}, invalid, "dataschema"},
		"a bad time":          {cloudevents.Kafka, set{"ce_time": "yesterday"}, invalid, "time"},
		"a bad content type":  {cloudevents.Kafka, set{"content-type": "json"}, invalid, "datacontenttype"},
		"a control character": {cloudevents.Kafka, set{"ce_subject": "a\u0085"}, invalid, "control"},
		"a noncharacter":      {cloudevents.Kafka, set{"ce_x": "\ufdd0"}, invalid, "noncharacter"},
		"not UTF-8":           {cloudevents.AMQP, set{"cloudEvents:id": "\xff"}, invalid, "UTF-8"},
		"two separators":      {cloudevents.AMQP, set{"cloudEvents_x": "1"}, invalid, "both prefixes"},
		"twice":               {cloudevents.HTTP, set{"CE-ID": "2"}, invalid, "twice"},
		"a content type beside that of HTTP": {
			cloudevents.HTTP, set{"ce-datacontenttype": "text/plain"}, invalid, "ce-datacontenttype",
		},
		"another format": {
			cloudevents.Kafka, set{"content-type": "Application/CloudEvents+Avro"}, cloudevents.ErrFormat, "Avro",
		},
		"a batch": {
			cloudevents.HTTP, set{"content-type": "application/cloudevents-batch+json"}, cloudevents.ErrFormat, "batch",
		},
		"no binding": {0, nil, nil, "binding(0)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			headers := maps.Clone(bindings[max(tt.binding, cloudevents.Kafka)].headers)
			for k, v := range tt.change {
				if headers[k] = v; v == missing {
					delete(headers, k)
				}
			}
			e, err := tt.binding.Decode(cloudevents.Message{Headers: headers, Body: []byte("{}")})
			if err == nil || tt.want != nil && !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%v, want %v with %q", err, tt.want, tt.says)
			}
			if !reflect.DeepEqual(e, cloudevents.Event{}) {
				t.Errorf("an event beside the error: %+v", e)
			}
		})
	}
}

func TestOtherMessagesAreNoCloudEvents(t *testing.T) {
	t.Parallel()
	for b := range bindings {
		for _, m := range []cloudevents.Message{
			{},
			{Body: []byte("hello")},
			{Body: []byte(`{"id":"1"}`)},
			{Headers: map[string]string{"content-type": "application/json", "event_id": "1", "ce": "1"}},
		} {
			if e, err := b.Decode(m); !errors.Is(err, cloudevents.ErrNotCloudEvent) {
				t.Errorf("%s takes %q: %+v, %v", b, m, e, err)
			}
		}
	}
}

// Encoding refuses an event that no receiver could read.
func TestEncodeRefuses(t *testing.T) {
	t.Parallel()
	for says, change := range map[string]func(*cloudevents.Event){
		"id is missing":                   func(e *cloudevents.Event) { e.ID = "" },
		"source is missing":               func(e *cloudevents.Event) { e.Source = "" },
		"type is missing":                 func(e *cloudevents.Event) { e.Type = "" },
		"source \"a b\" is not a URI":     func(e *cloudevents.Event) { e.Source = "a b" },
		"source \"%zz\" is not a URI":     func(e *cloudevents.Event) { e.Source = "%zz" },
		"dataschema":                      func(e *cloudevents.Event) { e.DataSchema = "v1" },
		"not a media type":                func(e *cloudevents.Event) { e.DataContentType = "text" },
		"not a media type such":           func(e *cloudevents.Event) { e.DataContentType = "text/plain\nx: y" },
		"time is in the year 10680":       func(e *cloudevents.Event) { e.Time = time.Unix(1<<38, 0) },
		"subject has a control character": func(e *cloudevents.Event) { e.Subject = "a\nb" },
		`"my_ext"`: func(e *cloudevents.Event) {
			e.Extensions = map[string]string{"my_ext": "1"}
		},
		`"subject" has the name of a core`: func(e *cloudevents.Event) {
			e.Extensions = map[string]string{"subject": "1"}
		},
	} {
		for b := range bindings {
			e := someEvent("text/plain", "")
			change(&e)
			for _, encode := range []func(cloudevents.Event) (cloudevents.Message, error){b.Binary, b.Structured} {
				m, err := encode(e)
				if !errors.Is(err, cloudevents.ErrInvalid) || !strings.Contains(err.Error(), says) || m.Headers != nil {
					t.Errorf("%s: %v, %v, want ErrInvalid with %q", b, m, err, says)
				}
			}
		}
	}
	if _, err := cloudevents.Kafka.Binary(someEvent(cloudevents.StructuredContentType, "{}")); !errors.Is(err,
		cloudevents.ErrInvalid) {
		t.Errorf("a CloudEvent inside of another: %v", err)
	}
}

func TestAttributes(t *testing.T) {
	t.Parallel()
	type set = map[string]string
	for name, tt := range map[string]struct {
		m    cloudevents.Message
		want set
	}{
		"kafka": {cloudevents.Message{Headers: set{"ce_id": "%31", "x": "y"}}, set{"id": "%31"}},
		"amqp":  {cloudevents.Message{Headers: set{"cloudEvents:id": "1"}}, set{"id": "1"}},
		"amqp_": {cloudevents.Message{Headers: set{"cloudEvents_id": "1"}}, set{"id": "1"}},
		"http":  {cloudevents.Message{Headers: set{"Ce-Id": "%31"}}, set{"id": "1"}},
		"not decodable": {
			cloudevents.Message{Headers: set{"ce-id": "100%"}}, set{"id": "100%"},
		},
		"structured": {
			cloudevents.Message{
				Headers: set{"content-type": "application/CloudEvents+json"},
				Body:    []byte(`{"id":"1","source":"/a","n":5,"data":{}}`),
			}, set{"id": "1", "source": "/a", "n": "5"},
		},
		"damaged": {cloudevents.Message{
			Headers: set{"content-type": "application/cloudevents+json"}, Body: []byte(`{`),
		}, nil},
		"none": {cloudevents.Message{Body: []byte(`{"id":"1"}`)}, nil},
	} {
		if got := cloudevents.Attributes(tt.m); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}
