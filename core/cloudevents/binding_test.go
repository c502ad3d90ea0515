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
		if got := tt.m.Attributes(); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

func structured(body string) cloudevents.Message {
	return cloudevents.Message{
		Headers: map[string]string{"content-type": "application/cloudevents+json; charset=UTF-8"}, Body: []byte(body),
	}
}

// The examples are those of section 3.2 of the JSON format.
func TestJSONExamplesOfTheSpecification(t *testing.T) {
	t.Parallel()
	const begin = `{ "specversion" : "1.0", "type" : "com.example.someevent", "source" : "/mycontext", "subject": null,
		"id" : "A234-1234-1234", "time" : "2018-04-05T17:31:00Z", "comexampleextension1" : "value",
		"comexampleothervalue" : 5, "unsetextension": null, `
	for rest, tt := range map[string]struct{ contentType, data string }{
		`"datacontenttype" : "application/vnd.apache.thrift.binary", "data_base64" : "AAH/"}`: {
			"application/vnd.apache.thrift.binary", "\x00\x01\xff",
		},
		`"datacontenttype" : "application/xml", "data" : "<much wow=\"xml\"/>"}`: {
			"application/xml", `<much wow="xml"/>`,
		},
		`"datacontenttype" : "application/json", "data" : { "appinfoA" : "abc", "appinfoB" : 123 }}`: {
			"application/json", `{ "appinfoA" : "abc", "appinfoB" : 123 }`,
		},
		`"datacontenttype" : "application/json", "data" : 1.5}`:        {"application/json", `1.5`},
		`"data" : "I'm just a string"}`:                                {"application/json", `"I'm just a string"`},
		`"data_base64" : "eyAieHl6IjogMTIzIH0="}`:                      {"", `{ "xyz": 123 }`},
		`"datacontenttype" : "application/json", "data" : null}`:       {"application/json", `null`},
		`"datacontenttype" : "text/plain"}`:                            {"text/plain", ""},
		`"datacontenttype" : "text/plain", "data_base64": null}`:       {"text/plain", ""},
		`"datacontenttype" : "Text/Vnd.X+JSON;v=1", "data" : "quote"}`: {"Text/Vnd.X+JSON;v=1", `"quote"`},
	} {
		want := cloudevents.Event{
			ID: "A234-1234-1234", Source: "/mycontext", Type: "com.example.someevent",
			Time: time.Date(2018, 4, 5, 17, 31, 0, 0, time.UTC), DataContentType: tt.contentType,
			Extensions: map[string]string{"comexampleextension1": "value", "comexampleothervalue": "5"},
		}
		if tt.data != "" {
			want.Data = []byte(tt.data)
		}
		for b := range bindings {
			if got, err := b.Decode(structured(begin + rest)); err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%s: %s: %+v, %v, want %+v", b, rest, got, err, want)
			}
		}
	}
}

func TestStructuredByteForByte(t *testing.T) {
	t.Parallel()
	const begin = `{"specversion":"1.0","id":"1234-1234-1234","source":"/mycontext/subcontext",` +
		`"type":"com.example.someevent","time":"2018-04-05T03:56:24Z"`
	for name, tt := range map[string]struct{ contentType, data, want string }{
		"JSON":              {"application/json", `{ "a": "<b>" }`, `,"data":{ "a": "<b>" }}`},
		"a suffix":          {"application/vnd.x+json", `1`, `,"data":1}`},
		"damaged JSON":      {"application/json", `{`, `,"data_base64":"ew=="}`},
		"another charset":   {"text/json; charset=latin1", `1`, `,"data_base64":"MQ=="}`},
		"text":              {"text/plain", "a", `,"data_base64":"YQ=="}`},
		"bytes":             {"", "\x00\x01\xff", `,"data_base64":"AAH/"}`},
		"JSON of no type":   {"", `{ "xyz": 123 }`, `,"data_base64":"eyAieHl6IjogMTIzIH0="}`},
		"no data":           {"text/plain", "", `}`},
		"JSON not in UTF-8": {"application/json", "\"\xff\"", `,"data_base64":"Iv8i"}`},
	} {
		for b := range bindings {
			got, err := b.Structured(someEvent(tt.contentType, tt.data))
			want := begin
			if tt.contentType != "" {
				want += `,"datacontenttype":"` + tt.contentType + `"`
			}
			want += tt.want
			header := map[string]string{"content-type": "application/cloudevents+json; charset=utf-8"}
			if b == cloudevents.NATS {
				header = map[string]string{"Content-Type": "application/cloudevents+json; charset=utf-8"}
			}
			if err != nil || string(got.Body) != want || !maps.Equal(got.Headers, header) {
				t.Errorf("%s: %s: %q, %v, want %s", name, b, got, err, want)
			}
		}
	}
	e := someEvent("", "")
	e.Subject, e.Extensions = "<\"\u2028é>", map[string]string{"b": "2", "a": "1"}
	got, err := cloudevents.HTTP.Structured(e)
	want := strings.Replace(begin, `,"time"`, `,"subject":"<\"\u2028é>","time"`, 1) + `,"a":"1","b":"2"}`
	if err != nil || string(got.Body) != want {
		t.Errorf("%s, %v, want %s", got.Body, err, want)
	}
}

func TestStructuredRefuses(t *testing.T) {
	t.Parallel()
	const good = `"specversion":"1.0","id":"1","source":"/a","type":"t"`
	for body, says := range map[string]string{
		``:                      "not a JSON object",
		`[{` + good + `}]`:      "not a JSON object",
		`{` + good:              "end of JSON input", // Go 1.26 says "EOF"
		`{` + good + `} {}`:     "goes on",
		`{` + good + `}x`:       "goes on",
		`{` + good + `,"id":1}`: `"id" appears twice`,
		`{"specversion":"1.0","id":1,"source":"/a","type":"t"}`:   `"id" is not a string`,
		`{"id":"1","source":"/a","type":"t"}`:                     "specversion is missing",
		`{"specversion":"1.0","id":null,"source":"/a"}`:           "id is missing",
		`{"specversion":"1.1","id":"1","source":"/a","type":"t"}`: "specversion is not 1.0",
		`{` + good + `,"subject":""}`:                             "subject is empty",
		`{` + good + `,"x":1.5}`:                                  "none of 32 bits",
		`{` + good + `,"x":2147483648}`:                           "none of 32 bits",
		`{` + good + `,"x":[]}`:                                   "neither text",
		`{` + good + `,"x_y":"1"}`:                                `"x_y"`,
		`{` + good + `,"data":1,"data_base64":"AA=="}`:            "both",
		`{` + good + `,"data_base64":"?"}`:                        "data_base64",
		`{` + good + `,"data_base64":5}`:                          "data_base64 is not a string",
		`{` + good + `,"datacontenttype":"text/xml","data":{}}`:   "is not a string",
		"{" + good + ",\"x\":\"\xff\"}":                           "UTF-8",
	} {
		e, err := cloudevents.Kafka.Decode(structured(body))
		if !errors.Is(err, cloudevents.ErrInvalid) ||
			!strings.Contains(strings.ReplaceAll(err.Error(), "EOF", "end of JSON input"), says) ||
			!reflect.DeepEqual(e, cloudevents.Event{}) {
			t.Errorf("%s: %+v, %v, want ErrInvalid with %q", body, e, err, says)
		}
	}
}

func TestValuesOfExtensions(t *testing.T) {
	t.Parallel()
	e, err := cloudevents.HTTP.Decode(structured(
		`{"specversion":"1.0","id":"1","source":"/a","type":"t","a":true,"b":-5,"c":"x","d":null,"e":false}`))
	want := map[string]string{"a": "true", "b": "-5", "c": "x", "e": "false"}
	if err != nil || !maps.Equal(e.Extensions, want) {
		t.Errorf("%q, %v, want %q", e.Extensions, err, want)
	}
}

// Before 2.2 NATS had no headers, and the Go SDK still writes none. The body tells the mode.
func TestNATSWithoutHeaders(t *testing.T) {
	t.Parallel()
	body := []byte(`{"specversion":"1.0","id":"1","source":"/a","type":"t"}`)
	for _, headers := range []map[string]string{
		nil, {"Nats-Msg-Id": "1"}, {"Content-Type": "Application/CloudEvents"},
	} {
		m := cloudevents.Message{Headers: headers, Body: body}
		if e, err := cloudevents.NATS.Decode(m); err != nil || e.ID != "1" {
			t.Errorf("%v: %+v, %v", headers, e, err)
		}
	}
}
