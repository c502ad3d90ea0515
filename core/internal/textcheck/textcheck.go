// Package textcheck judges short texts that name things, as keys, consumers, channels and headers
// do, and makes foreign texts fit to show.
package textcheck

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Problem returns why a text of at most limit bytes is invalid. The result is the end of a sentence
// that begins with the name of the text, or "" if nothing is wrong.
func Problem(s string, limit int, required bool) string {
	switch {
	case len(s) <= limit && s != "" && printable(s): // as nearly all are
		return ""
	case s == "" && required:
		return "is empty"
	case len(s) > limit:
		return fmt.Sprintf("has %d bytes, more than %d", len(s), limit)
	case !utf8.ValidString(s):
		return "is not valid UTF-8"
	case strings.IndexFunc(s, func(r rune) bool { return r < 0x20 || r == 0x7f }) >= 0:
		return "has a control character"
	}
	return ""
}

// Part is a text of a value that has several.
type Part struct {
	Name, Text string
	Limit      int
	Required   bool
}

// Check reports the problems of all parts as one error.
func Check(parts ...Part) error {
	var problems []error
	for _, p := range parts {
		if problem := Problem(p.Text, p.Limit, p.Required); problem != "" {
			problems = append(problems, errors.New(p.Name+" "+problem))
		}
	}
	return errors.Join(problems...)
}

// NameProblem is Problem for a text that this program gives a thing: it has no hidden character
// either. Names that others gave may have one.
func NameProblem(s string, limit int, required bool) string {
	if p := Problem(s, limit, required); p != "" {
		return p
	}
	if i := strings.IndexFunc(s, Hidden); i >= 0 {
		r, _ := utf8.DecodeRuneInString(s[i:])
		return fmt.Sprintf("has the character %U, which is not seen", r)
	}
	return ""
}

// printable reports whether s has only printable characters of ASCII.
func printable(s string) bool {
	for i := range len(s) {
		if s[i] < 0x20 || s[i] > 0x7e {
			return false
		}
	}
	return true
}

// Hidden reports whether a terminal or a page shows nothing for a character, or obeys it: the
// controls (Unicode's class Cc: C0, DEL and C1), the separators of lines and paragraphs (Zl, Zp),
// and the formats (Cf: changes of the direction of a text, and characters without a width), except
// for characters that scripts and emojis need: the joiners U+200C and U+200D, and visible signs.
func Hidden(r rune) bool {
	switch {
	case r < utf8.RuneSelf:
		return r < ' ' || r == 0x7f
	case unicode.In(r, unicode.Join_Control, unicode.Prepended_Concatenation_Mark):
		return false
	}
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp)
}

// Line returns a text as a terminal or a page may show it, in one line. Space of any kind becomes a
// blank, and hidden characters become visible, as \x1b or \u202e. So do bytes that are not UTF-8.
func Line(s string) string {
	if printable(s) {
		return s
	}
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], string(utf8.RuneError)):
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case !Hidden(r):
			b.WriteRune(r)
		case unicode.IsSpace(r):
			b.WriteByte(' ')
		case r < utf8.RuneSelf:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r <= 0xffff:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
	}
	return b.String()
}
