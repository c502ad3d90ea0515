package core

import (
	"context"
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
)

// Codec turns Event.Data into the bytes that are inserted and published. Encode is called once per
// event, before anything is written. Many goroutines call it at once.
type Codec interface {
	Encode(ctx context.Context, data any) (payload []byte, contentType string, err error)
}

// JSON is the default Codec: encoding/json, content type application/json. It refuses a []byte and
// similar types, because encoding/json would turn them into base64 text. Put bytes that must be
// published unchanged into Event.Payload. JSON text may also be a json.RawMessage.
var JSON Codec = jsonCodec{}

type jsonCodec struct{}

func (jsonCodec) Encode(_ context.Context, data any) ([]byte, string, error) {
	if isBytes(data) {
		return nil, "", fmt.Errorf("event Data is a %T, which would become base64 text: put bytes that are to be "+
			"published as they are into Payload, "+
			"or make JSON text a json.RawMessage", data)
	}
	b, err := json.Marshal(data)
	return b, "application/json", err
}

// isBytes reports whether encoding/json turns data into base64 text.
func isBytes(data any) bool {
	t := reflect.TypeOf(data)
	for t != nil && t.Kind() == reflect.Pointer && !marshals(t) {
		t = t.Elem()
	}
	return t != nil && t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8 && !marshals(t) &&
		!marshals(reflect.PointerTo(t.Elem()))
}

var (
	jsonMarshaler = reflect.TypeFor[json.Marshaler]()
	textMarshaler = reflect.TypeFor[encoding.TextMarshaler]()
)

func marshals(t reflect.Type) bool { return t.Implements(jsonMarshaler) || t.Implements(textMarshaler) }
