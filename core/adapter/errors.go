package adapter

import (
	"fmt"

	"github.com/ormoutbox/ormoutbox/core/internal/errtext"
)

// Errorf is fmt.Errorf for a text that begins with "outbox: ". An error that it wraps does not say
// so again.
func Errorf(format string, args ...any) error { return errtext.Errorf(format, args...) }

// CausesEvents is the error of a statement that is refused, because its events could not be
// written: err says why. of names the table or the type.
func CausesEvents(op fmt.Stringer, of string, err error) error {
	return Errorf("outbox: %s of %s causes events: %w", op, of, err)
}
