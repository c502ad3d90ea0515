// Package errtext makes texts of errors fit to be read, stored and logged.
package errtext

import (
	"regexp"
	"strings"
	"unicode/utf8"
)

const maxBytes = 2 << 10

var (
	urlPassword = regexp.MustCompile(`://[^/\s@]*@`)
	keyPassword = regexp.MustCompile(
		`(?i)\b(password|passwd|pwd|secret|token|sasl\.password|api[_-]?key)(\s*[=:]\s*)\S+`,
	)
)

// Redact returns the text of an error without credentials and NUL, as valid UTF-8 of at most 2 KiB.
func Redact(s string) string {
	s = strings.ToValidUTF8(s, "?")
	s = strings.ReplaceAll(s, "\x00", "?")
	if len(s) > 4*maxBytes {
		s = s[:4*maxBytes]
	}
	s = urlPassword.ReplaceAllString(s, "://***@")
	s = keyPassword.ReplaceAllString(s, "$1$2***")
	if len(s) > maxBytes {
		n := maxBytes
		for n > 0 && !utf8.RuneStart(s[n]) {
			n--
		}
		s = s[:n]
	}
	return strings.ToValidUTF8(s, "?")
}
