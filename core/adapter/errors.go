package adapter

import (
	"errors"
	"fmt"

	"github.com/ormoutbox/ormoutbox/core/internal/errtext"
)

// ErrPanicked is the reason why a transaction must not commit after a statement whose events were
// not written, because a function of the program panicked or ended its goroutine. The panic itself
// goes on.
var ErrPanicked = errors.New("outbox: a function panicked before the events of its statement were written")

// Errorf is fmt.Errorf for a text that begins with "outbox: ". An error that it wraps does not say
// so again.
func Errorf(format string, args ...any) error { return errtext.Errorf(format, args...) }

// CausesEvents is the error of a statement that is refused, because its events could not be
// written: err says why. of names the table or the type.
func CausesEvents(op fmt.Stringer, of string, err error) error {
	return Errorf("outbox: %s of %s causes events: %w", op, of, err)
}
