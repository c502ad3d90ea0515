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
			header := map[string]string{"content-type": "application/cloudevents+json; charset=UTF-8"}
			if b == cloudevents.NATS {
				header = map[string]string{"Content-Type": "application/cloudevents+json; charset=UTF-8"}
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
		`{` + good:              "EOF",
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
		if !errors.Is(err, cloudevents.ErrInvalid) || !strings.Contains(err.Error(), says) ||
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
