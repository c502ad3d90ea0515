package core

import (
	"context"
	"encoding/json"
)

// Codec turns Event.Data into the bytes that are inserted and published. Encode is called once per event, before anything is
// written, by many goroutines at once.
type Codec interface {
	Encode(ctx context.Context, data any) (payload []byte, contentType string, err error)
}

// JSON is the default Codec: encoding/json, content type application/json.
var JSON Codec = jsonCodec{}

type jsonCodec struct{}

func (jsonCodec) Encode(_ context.Context, data any) ([]byte, string, error) {
	b, err := json.Marshal(data)
	return b, "application/json", err
}
