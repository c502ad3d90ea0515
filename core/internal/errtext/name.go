package errtext

import (
	"fmt"
	"strings"
)

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
