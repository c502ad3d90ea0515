package core_test

import (
	"encoding/json"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
)

type (
	ownBytes  []byte
	ownJSON   []byte
	ownText   []byte
	octet     byte
	octets    []octet
	typedBody []byte
)

func (ownJSON) MarshalJSON() ([]byte, error) { return []byte("1"), nil }
func (ownText) MarshalText() ([]byte, error) { return []byte("two"), nil }
func (typedBody) EventType() string          { return "thing.happened" }

// JSON text is inserted unchanged if its type says that it is JSON. Bytes of another type would
// become base64, so they are refused before anything is written.
func TestJSONRefusesBytes(t *testing.T) {
	text := []byte(`{"id":7}`)
	raw := json.RawMessage(text)
	for name, tt := range map[string]struct {
		data any
		want string // empty: refused
	}{
		"[]byte":              {text, ""},
		"[]byte, no JSON":     {[]byte("<a/>"), ""},
		"[]byte, nil":         {[]byte(nil), ""},
		"pointer":             {&text, ""},
		"named bytes":         {ownBytes(text), ""},
		"slice of named byte": {octets{1}, ""},
		"bytes of a type":     {typedBody(text), ""},
		"RawMessage":          {raw, `{"id":7}`},
		"pointer to it":       {&raw, `{"id":7}`},
		"MarshalJSON":         {ownJSON(text), "1"},
		"MarshalText":         {ownText(text), `"two"`},
		"a field":             {struct{ B []byte }{[]byte("x")}, `{"B":"eA=="}`},
		"an array":            {[2]byte{1, 2}, "[1,2]"},
		"an address":          {netip.MustParseAddr("::1"), `"::1"`},
	} {
		t.Run(name, func(t *testing.T) {
			rows, _, err := publish(t, core.Config{}, core.Event{Type: "thing.happened", Data: tt.data})
			if tt.want == "" {
				if !errors.Is(err, core.ErrInvalidEvent) || !strings.Contains(err.Error(), "Payload") ||
					!strings.Contains(err.Error(), "json.RawMessage") {
					t.Errorf("%v", err)
				}
				equal(t, len(rows), 0, "written: %v", rows)
				return
			}
			if err != nil || len(rows) != 1 || string(rows[0].Event.Payload) != tt.want {
				t.Errorf("%v, %v", rows, err)
			}
		})
	}
}
