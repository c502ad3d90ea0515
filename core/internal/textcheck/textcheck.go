// Package textcheck judges short texts that name things: keys, consumers, channels, headers.
package textcheck

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Problem says what is wrong with a text of at most limit bytes. The result is the end of a
// sentence that begins with the name of the text, or "" if nothing is wrong.
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

// printable reports whether s has only printable characters of ASCII.
func printable(s string) bool {
	for i := range len(s) {
		if s[i] < 0x20 || s[i] > 0x7e {
			return false
		}
	}
	return true
}
