package walrelay

import (
	"encoding/json"
	"maps"
	"testing"
	"unicode/utf8"
)

// Headers are read the same with and without the parser of JSON.
func FuzzPlainHeaders(f *testing.F) {
	for _, text := range []string{
		`{}`, `{"a": "b"}`, `{"a": "", "b": "c, d: {}"}`, `{"a": 1}`, `{"a": "\""}`, `{"": "x"}`, `{"a": "b",}`,
		`{"a"}`, `{"a": "b", }`, `{"ü": "世界"}`, `{"a": null, "b": "c"}`, `{"a": "b"}}`, `{"a": {"b": "c"}}`,
		`{"a": "b", "c"`, `{`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if !json.Valid(text) || !utf8.Valid(text) { // PostgreSQL sends no other
			_, _ = names{}.plainHeaders(text)
			return
		}
		got, ok := names{}.plainHeaders(text)
		if !ok {
			return
		}
		want, err := headersOf(text)
		if err != nil || !maps.Equal(got, want) {
			t.Errorf("%q: got %v, want %v, %v", text, got, want, err)
		}
	})
}
