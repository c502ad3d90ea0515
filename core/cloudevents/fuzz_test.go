package cloudevents_test

import (
	"bytes"
	"maps"
	"reflect"
	"testing"

	"github.com/ormoutbox/ormoutbox/core/cloudevents"
)

var prefixes = map[cloudevents.Binding]string{
	cloudevents.Kafka: "ce_", cloudevents.AMQP: "cloudEvents:", cloudevents.AMQPUnderscore: "cloudEvents_",
	cloudevents.NATS: "ce-", cloudevents.HTTP: "ce-",
}

// An event that Decode returns is valid, and stays the same in every binding and mode.
func FuzzDecode(f *testing.F) {
	for b, example := range bindings {
		f.Add(byte(b), example.contentType, "subject", "Euro%20%E2%82%AC", []byte(`{"a":1}`))
	}
	f.Add(byte(cloudevents.Kafka), "application/cloudevents+json", "", "",
		[]byte(`{"specversion":"1.0","id":"1","source":"/a","type":"t","x":-0,"data":"I'm just a string"}`))
	f.Add(byte(cloudevents.NATS), "application/cloudevents", "", "",
		[]byte(`{"specversion":"1.0","id":"1","source":"/a","type":"t","time":"2018-04-05t17:31:00.1z",`+
			`"data_base64":"AA=="}`))
	f.Fuzz(func(t *testing.T, binding byte, contentType, name, value string, body []byte) {
		b := cloudevents.Binding(binding)
		headers := map[string]string{}
		if example, ok := bindings[b]; ok {
			maps.Copy(headers, example.headers)
			headers[prefixes[b]+name] = value
		}
		if contentType != "" {
			headers["content-type"] = contentType
		}
		m := cloudevents.Message{Headers: headers, Body: body}
		_ = m.Attributes()
		e, err := b.Decode(m)
		if err != nil {
			if !reflect.DeepEqual(e, cloudevents.Event{}) {
				t.Fatalf("an event beside the error %v", err)
			}
			return
		}
		if err := e.Validate(); err != nil {
			t.Fatalf("decoded, but %v", err)
		}
		for b := range bindings {
			for _, encode := range []func(cloudevents.Event) (cloudevents.Message, error){b.Binary, b.Structured} {
				again, err := encode(e)
				if err != nil {
					continue // a CloudEvent inside of another
				}
				got, err := b.Decode(again)
				if err != nil {
					t.Fatalf("%s: %q: %v", b, again, err)
				}
				// Blanks around a JSON document are not a part of it.
				if !bytes.Equal(bytes.TrimSpace(got.Data), bytes.TrimSpace(e.Data)) {
					t.Fatalf("%s: data %q became %q", b, e.Data, got.Data)
				}
				got.Data = e.Data
				if !reflect.DeepEqual(got, e) {
					t.Fatalf("%s: %+v became %+v", b, e, got)
				}
			}
		}
	})
}
