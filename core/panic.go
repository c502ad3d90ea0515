package core

import (
	"fmt"
	"runtime/debug"

	"github.com/ormoutbox/ormoutbox/core/internal/errtext"
)

// PanicError is returned when a user's function panicked or ended its goroutine by runtime.Goexit.
// It appears in calls of observers, in logs, and in tables. It does not wrap the value of the
// panic, because a panic with an error does not mean what returning that error means. Find it with
// errors.As.
type PanicError struct {
	// Value is the value of the panic. Nil: the function called runtime.Goexit, as t.FailNow does.
	Value any
	// Stack is the stack of the panic.
	Stack []byte
}

// NewPanicError makes a PanicError of the result of recover. Call it in the deferred function that
// called recover, where the stack of the panic still exists. A value that is a *PanicError is
// returned as it is: it has come from another goroutine, with the stack of that one.
func NewPanicError(value any) *PanicError {
	if p, ok := value.(*PanicError); ok {
		return p
	}
	return &PanicError{Value: value, Stack: debug.Stack()}
}

// Error returns "panic: " and the value, without credentials, as valid UTF-8 of at most 2 KiB.
func (e *PanicError) Error() string {
	if e.Value == nil {
		return "runtime.Goexit ended its goroutine"
	}
	return errtext.Redact("panic: " + fmt.Sprint(e.Value))
}
