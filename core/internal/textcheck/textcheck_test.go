package textcheck_test

import (
	"testing"

	"github.com/ormoutbox/ormoutbox/core/internal/textcheck"
)

func TestProblem(t *testing.T) {
	for _, c := range []struct {
		text     string
		required bool
		want     string
	}{
		{"", false, ""},
		{"", true, "is empty"},
		{"abcd", true, ""},
		{"abcde", true, "has 5 bytes, more than 4"},
		{"éé", true, ""},
		{"\xff", true, "is not valid UTF-8"},
		{"a\n", true, "has a control character"},
		{"\x7f", false, "has a control character"},
	} {
		if got := textcheck.Problem(c.text, 4, c.required); got != c.want {
			t.Errorf("%q, required %t: %q, want %q", c.text, c.required, got, c.want)
		}
	}
}
