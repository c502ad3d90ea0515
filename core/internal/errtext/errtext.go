// Package errtext makes texts of errors fit to be read, stored and logged.
package errtext

import (
	"fmt"
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

// Of returns the redacted text of err, and "" for nil.
func Of(err error) string {
	if err == nil {
		return ""
	}
	return Redact(err.Error())
}

// Clip cuts s to at most n bytes at a rune boundary, for use in messages.
func Clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "..."
}

// Errorf is fmt.Errorf for a text that begins with the name of its package, as "outbox: insert: "
// does. If the errors that it wraps name the package again, the result names it only once. So a
// text may wrap any error of its own package.
func Errorf(format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	text := err.Error()
	name := Repeated(text)
	if name == "" {
		return err
	}
	for again := ": " + name + ": "; strings.Contains(text, again); {
		text = strings.ReplaceAll(text, again, ": ")
	}
	return &namedOnce{text, err}
}

// Repeated returns the name with which text begins, if text names it again: "a" of "a: b: a: c". It
// returns "" for any other text.
func Repeated(text string) string {
	name, _, found := strings.Cut(text, ": ")
	if !found || name == "" || strings.ContainsAny(name, " \n") || !strings.Contains(text, ": "+name+": ") {
		return ""
	}
	return name
}

// namedOnce is an error with a text of its own.
type namedOnce struct {
	text string
	err  error
}

func (e *namedOnce) Error() string { return e.text }

// Unwrap returns the error with the text that fmt.Errorf made.
func (e *namedOnce) Unwrap() error { return e.err }
