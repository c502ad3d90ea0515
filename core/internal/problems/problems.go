// Package problems collects the problems of a configuration, so that one error names all of them.
package problems

import (
	"errors"
	"fmt"
)

// List is a list of problems.
type List struct {
	Of  string // what each of them begins with
	all []error
}

// If adds a problem to the list if there is one.
func (l *List) If(wrong bool, format string, args ...any) {
	if wrong {
		l.all = append(l.all, fmt.Errorf(l.Of+format, args...))
	}
}

// Add adds an error to the list, unless it is nil.
func (l *List) Add(err error) { l.all = append(l.all, err) }

// Err returns the problems as one error.
func (l *List) Err() error { return errors.Join(l.all...) }
