package textcheck_test

import (
	"fmt"
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
		if got := textcheck.NameProblem(c.text, 4, c.required); got != c.want {
			t.Errorf("%q, required %t: as a new name %q, want %q", c.text, c.required, got, c.want)
		}
	}
	for _, text := range []string{"\u009b", "\u202e", "\ufeff"} {
		if p := textcheck.Problem(text, 4, true); p != "" {
			t.Errorf("%q %s", text, p)
		}
		if p, want := textcheck.NameProblem(text, 4, true), fmt.Sprintf("has the character %U, which is not seen",
			[]rune(text)[0]); p != want {
			t.Errorf("%q %s, want %s", text, p, want)
		}
	}
}
