package errtext_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/ormoutbox/ormoutbox/core/internal/errtext"
)

func TestRedact(t *testing.T) {
	for in, want := range map[string]string{
		"":                                   "",
		"refused":                            "refused",
		"dial postgres://ada:pw@db/x failed": "dial postgres://***@db/x failed",
		"password=hunter2 host=db":           "password=*** host=db",
		"API-Key: abc, Token = def":          "API-Key: *** Token = ***",
		"a\x00b\xffc":                        "a?b?c",
	} {
		if got := errtext.Redact(in); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
	if got := errtext.Redact(strings.Repeat("ü", 9999)); len(got) != 2048 || !utf8.ValidString(got) {
		t.Errorf("%d bytes", len(got))
	}
}
