package core

import (
	"fmt"
	"runtime/debug"

	"github.com/ormoutbox/ormoutbox/core/internal/errtext"
)

// PanicError says with what somebody's function panicked, or that it ended its goroutine by
// runtime.Goexit, where only an error can say so: to observers, in logs, and in tables. It does not
// wrap the value, because what an error means when it is returned is not what it means here.
// Find it with errors.As.
type PanicError struct {
	// Value is what the function panicked with. Nil: it called runtime.Goexit, as t.FailNow does.
	Value any
	// Stack is where it did so.
	Stack []byte
}

// NewPanicError takes what recover returned. Call it in the deferred function that called recover:
// the stack of the panic is there until that returns.
func NewPanicError(value any) *PanicError {
	return &PanicError{Value: value, Stack: debug.Stack()}
}

// Error returns "panic: " and the value, without credentials, as valid UTF-8 of at most 2 KiB.
func (e *PanicError) Error() string {
	if e.Value == nil {
		return "runtime.Goexit ended its goroutine"
	}
	return errtext.Redact("panic: " + fmt.Sprint(e.Value))
}
