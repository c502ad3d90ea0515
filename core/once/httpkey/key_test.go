package httpkey_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/core/once/httpkey"
)

func TestParseKey(t *testing.T) {
	long := strings.Repeat("k", 255)
	for header, want := range map[string]string{
		"k1": "k1", `"k1"`: "k1", " \tk1\t ": "k1", ` "k1" `: "k1", "a b": "a b", `"a b"`: "a b", `" a"`: " a",
		`a"b`: `a"b`, `"a\"b"`: `a"b`, `a\b`: `a\b`, `"a\\b"`: `a\b`, "a,b": "a,b", "~!": "~!", long: long,
		`"` + long + `"`: long, "9b1deb4d-3b7d-4bad-9bdd-2b0d7b3dcb6d": "9b1deb4d-3b7d-4bad-9bdd-2b0d7b3dcb6d",
	} {
		if got, err := httpkey.ParseKey(header); err != nil || got != want {
			t.Errorf("ParseKey(%q) = %q, %v, want %q", header, got, err, want)
		}
	}
	for _, header := range []string{
		"", " ", `"`, `""`, `"a`, `"a\`, `"a\"`, `"a\n"`, `"a"b`, `"a";x=1`, `"a","b"`, "a\x00", "a\x7f", "a\tb", "é",
		"a\xff", long + "k", `"` + long + `k"`,
	} {
		if got, err := httpkey.ParseKey(header); !errors.Is(err, httpkey.ErrInvalidKey) {
			t.Errorf("ParseKey(%q) = %q, %v", header, got, err)
		}
	}
}

func FuzzParseKey(f *testing.F) {
	for _, s := range []string{"k1", `"k1"`, `"a\"b\\"`, "", `"`, "a\x00", "é", `"a" `} {
		f.Add(s)
	}
	quote := strings.NewReplacer(`\`, `\\`, `"`, `\"`)
	f.Fuzz(func(t *testing.T, header string) {
		key, err := httpkey.ParseKey(header)
		if err != nil {
			if key != "" || !errors.Is(err, httpkey.ErrInvalidKey) {
				t.Fatalf("%q, %v", key, err)
			}
			return
		}
		if len(key) < 1 || len(key) > 255 || strings.ContainsFunc(key,
			func(r rune) bool { return r < 0x20 || r > 0x7e }) {
			t.Fatalf("%q is not a key", key)
		}
		// The quoted form of a key is the same key.
		if again, err := httpkey.ParseKey(`"` + quote.Replace(key) + `"`); err != nil || again != key {
			t.Fatalf("%q became %q, %v", key, again, err)
		}
		if !strings.HasPrefix(strings.Trim(header, " \t"), `"`) && key != strings.Trim(header, " \t") {
			t.Fatalf("bare %q became %q", header, key)
		}
	})
}
