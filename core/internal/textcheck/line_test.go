package textcheck_test

import (
	"strings"
	"testing"
	"unicode"

	"github.com/ormoutbox/ormoutbox/core/internal/textcheck"
)

func TestLine(t *testing.T) {
	for text, want := range map[string]string{
		"":                      "",
		"plain \\x1b":           "plain \\x1b",
		"é 漢 😀":                 "é 漢 😀",
		"two\nlines\tand\r\n":   "two lines and  ",
		"a\u0085b\u2028c\u2029": "a b c ",
		"\x1b]0;t\x07":          `\x1b]0;t\x07`,
		"\x00\x7f":              `\x00\x7f`,
		"\u009b31m":             `\u009b31m`,
		"\x9b31m\xff":           `\x9b31m\xff`, // no UTF-8
		"\ufffd":                "\ufffd",
		"a\u202eb\u2066c\u200f": `a\u202eb\u2066c\u200f`,
		"\ufeff\u200b\u00ad":    `\ufeff\u200b\u00ad`,
		"\U000e0041":            `\U000e0041`,
		"👩\u200d👧 می\u200cروم":  "👩\u200d👧 می\u200cروم",
		"\u0600١":               "\u0600١",
	} {
		if got := textcheck.Line(text); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
}

// No control and nothing that turns the direction of a text is shown.
func TestHidden(t *testing.T) {
	for r := range rune(unicode.MaxRune + 1) {
		must := unicode.In(r, unicode.Cc, unicode.Zl, unicode.Zp, unicode.Bidi_Control)
		if must && !textcheck.Hidden(r) || textcheck.Hidden(r) && unicode.IsGraphic(r) && !must {
			t.Errorf("%U is hidden: %t", r, textcheck.Hidden(r))
		}
		if textcheck.Hidden(r) && strings.ContainsRune(textcheck.Line(string(r)), r) {
			t.Errorf("%U is left", r)
		}
	}
}
